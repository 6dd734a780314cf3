"""The HTTP API of the master and its web page.

Rule: a route answers by calls of the services of gRPC, which pass the same checks (`calls`); no
operation has a second implementation. Nothing here is loaded before the first HTTP connection.
"""
