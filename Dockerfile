# Serves the executables and models in /models: docker build -t treadle . && docker run -p 8000:8000 -v $PWD/models:/models:ro treadle
FROM python:3.12-slim AS build
COPY . /source
RUN pip wheel --no-cache-dir --wheel-dir /wheels "/source[serve,onnx,grammar]"

FROM python:3.12-slim
RUN --mount=type=bind,from=build,source=/wheels,target=/wheels pip install --no-cache-dir /wheels/*.whl && useradd --create-home app
RUN mkdir /models /home/app/.cache && chown app /home/app/.cache

USER app
# Kernels are compiled once, where the cache is a volume
VOLUME /home/app/.cache
EXPOSE 8000 8001
HEALTHCHECK --interval=10s --start-period=120s CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8000/v2/health/ready')"]
CMD ["treadle", "serve", "/models", "--host", "0.0.0.0", "--access-log", "-"]
