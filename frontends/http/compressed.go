package httpfrontend

import (
	"bytes"
	"encoding/binary"
	"math/bits"
	"mime"
	"net/http"
	"net/textproto"
	"strings"

	"github.com/python-executor/python-executor/core/executor"
)

// tarHeader is how many bytes of a tar tell whether it is one: up to the end of the magic in its first header.
const tarHeader = 257 + 5

// compressedMagic holds how the formats begin that people mistake for a tar.
var compressedMagic = []struct{ name, prefix string }{
	{"gzip", "\x1f\x8b"},
	{"bzip2", "BZh"},
	{"xz", "\xfd7zXZ\x00"},
	{"zstd", "\x28\xb5\x2f\xfd"},
	{"lz4", "\x04\x22\x4d\x18"},
	{"lzip", "LZIP"},
	{"compress", "\x1f\x9d"},
	{"7z", "7z\xbc\xaf\x27\x1c"},
	{"zip", "PK\x03\x04"},
	{"lzop", "\x89LZO\x00"},
	{"rar", "Rar!\x1a\x07"},
}

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

// checkMagic refuses a tar whose first bytes are those of a compressed file. A tar may begin with any name, "BZh.txt"
// too, so what has a tar's own magic is one.
func checkMagic(head []byte) error {
	if len(head) >= tarHeader && bytes.Equal(head[257:tarHeader], []byte("ustar")) {
		return nil
	}
	for _, m := range compressedMagic {
		if bytes.HasPrefix(head, []byte(m.prefix)) {
			return compressedError(m.name)
		}
	}
	if isLZMA(head) {
		return compressedError("lzma")
	}
	return nil
}

// isLZMA reports whether head begins as `xz --format=lzma` and `tar --lzma` write it, a format without a magic: properties,
// a dictionary of 2^n or 2^n + 2^(n-1) bytes, and a size that is mostly unknown (all ones). A tar of a file named "]" has
// zeros there.
func isLZMA(head []byte) bool {
	if len(head) < 13 || head[0] != 0x5d {
		return false
	}
	dictionary, size := binary.LittleEndian.Uint32(head[1:]), binary.LittleEndian.Uint64(head[5:])
	return bits.OnesCount32(dictionary) <= 2 && dictionary >= 1<<12 && (size == 1<<64-1 || size-1 < 1<<40)
}
