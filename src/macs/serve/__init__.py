"""serve: an exported detector behind an HTTP address, without torch. `macs serve` starts it.

A request goes through these files in order:

    server      sockets, signals, slow or too many connections
    gate        request id, API key, limits on a body's size and time, security headers, metrics, log
    app         routes; `create_app(path)` is for other servers
    service     what the routes do
    uploads     a body in one of three forms -> the bytes of images
    inference   the same for the Open Inference Protocol v2
    pipeline    bytes -> pixels by threads -> batches -> the network
    served      the detector, thresholds by request, its description
    watch       loads the detector again when its file changes
    metrics     counts, latencies, the share of OOD images, drift

`on_ray` puts the application into replicas of Ray Serve.
"""
