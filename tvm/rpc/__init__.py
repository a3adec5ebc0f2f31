"""`tvm.rpc`: sessions of this process, and of servers that run `treadle serve --remote`, under TVM's names."""

from . import server, testing
from .client import LocalSession, RemoteSession, RPCSession, connect
from .server import Server

__all__ = ["LocalSession", "RPCSession", "RemoteSession", "Server", "connect", "server", "testing"]
