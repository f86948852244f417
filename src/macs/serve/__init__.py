"""serve: an exported detector behind an HTTP address, without torch. `macs serve` starts it.

A request goes through these files in order:

    server            sockets, signals, slow or too many connections
    middleware        request id, API key, host, security headers, metrics, log
    app               routes; `create_app(path)` is for other servers
    service           the routes that judge images, and the parts that they need
    uploads           limits on a body's size and time; a body in one of three forms -> the bytes of images
    open_inference    the same for the Open Inference Protocol v2
    pipeline          bytes -> pixels by threads -> batches -> the network
    loaded_detector   the detector, thresholds by request, its description; loads it again when its file changes
    metrics, drift    counts, latencies, the share of OOD images, drift; the log
"""
