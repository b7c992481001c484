package httpfrontend

import (
	"mime"
	"net/http"
	"net/textproto"
	"strings"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/detect"
)

// compressedTypes are content types of parts that are not an uncompressed tar.
var compressedTypes = map[string]string{
	"application/gzip": "gzip", "application/x-gzip": "gzip", "application/x-compressed-tar": "gzip", "application/x-gtar-compressed": "gzip",
	"application/x-tgz": "gzip", "application/x-bzip": "bzip2", "application/x-bzip2": "bzip2", "application/x-bzip-compressed-tar": "bzip2",
	"application/x-xz": "xz", "application/x-xz-compressed-tar": "xz", "application/zstd": "zstd", "application/x-zstd-compressed-tar": "zstd",
	"application/zip": "zip", "application/x-zip-compressed": "zip", "application/x-7z-compressed": "7z", "application/x-lzma": "lzma",
}

func compressedError(format string) error {
	return in("multipart", &requestError{status: http.StatusUnsupportedMediaType, err: executor.FieldErrorf(executor.Invalid,
		"tar", "must be an uncompressed tar archive (got %s)", format)})
}

// checkPartHeader refuses a tar part that says itself that it is compressed.
func checkPartHeader(h textproto.MIMEHeader) error {
	if enc := h.Get("Content-Encoding"); enc != "" && !strings.EqualFold(enc, "identity") {
		return compressedError("a Content-Encoding")
	}
	mediaType, _, err := mime.ParseMediaType(h.Get("Content-Type"))
	if format, ok := compressedTypes[mediaType]; err == nil && ok {
		return compressedError(format)
	}
	return nil
}

// checkMagic refuses a tar whose first bytes are those of a compressed file.
func checkMagic(head []byte) error {
	if format := detect.Compressed(head); format != "" {
		return compressedError(format)
	}
	return nil
}
