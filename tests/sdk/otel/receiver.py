"""Takes OTLP over HTTP and gRPC, read with the official messages. Prints the two ports, then a line of JSON for
everything that comes: {"way", "token", "traces", "metrics" or "logs"}."""

import json
import sys
import threading
from concurrent import futures
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import grpc
from google.protobuf.json_format import MessageToDict
from opentelemetry.proto.collector.logs.v1 import logs_service_pb2 as logs
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2 as metrics
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2_grpc as metrics_grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as traces
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2_grpc as traces_grpc

lock = threading.Lock()


def say(way, signal, message, token):
    with lock:
        print(json.dumps({"way": way, "token": token, signal: MessageToDict(message)}), flush=True)


class Http(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        kinds = {"/v1/traces": ("traces", traces.ExportTraceServiceRequest, traces.ExportTraceServiceResponse),
                 "/v1/metrics": ("metrics", metrics.ExportMetricsServiceRequest, metrics.ExportMetricsServiceResponse),
                 "/v1/logs": ("logs", logs.ExportLogsServiceRequest, logs.ExportLogsServiceResponse)}
        if self.path not in kinds or self.headers["Content-Type"] != "application/x-protobuf":
            return self.send_error(404)
        signal, request, response = kinds[self.path]
        say("http", signal, request.FromString(body), self.headers["Authorization"])
        answer = response().SerializeToString()
        self.send_response(200)
        self.send_header("Content-Type", "application/x-protobuf")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_):
        pass


class Traces(traces_grpc.TraceServiceServicer):
    def Export(self, request, context):
        say("grpc", "traces", request, dict(context.invocation_metadata()).get("authorization"))
        return traces.ExportTraceServiceResponse()


class Metrics(metrics_grpc.MetricsServiceServicer):
    def Export(self, request, context):
        say("grpc", "metrics", request, dict(context.invocation_metadata()).get("authorization"))
        return metrics.ExportMetricsServiceResponse()


http = ThreadingHTTPServer(("127.0.0.1", 0), Http)
server = grpc.server(futures.ThreadPoolExecutor(4))
traces_grpc.add_TraceServiceServicer_to_server(Traces(), server)
metrics_grpc.add_MetricsServiceServicer_to_server(Metrics(), server)
port = server.add_insecure_port("127.0.0.1:0")
server.start()
print(http.server_address[1], port, flush=True)
threading.Thread(target=http.serve_forever, daemon=True).start()
sys.stdin.read()
