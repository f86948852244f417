"""The guarded import of fcntl, which locks files; None on Windows, where files are not locked."""

try:
    import fcntl
except ImportError:
    fcntl = None  # type: ignore[assignment]

__all__ = ["fcntl"]
