"""Readers and writers of TVM's file formats."""
