package detect

import (
	"bytes"
	"encoding/binary"
	"math/bits"
)

// HeadBytes is the number of bytes that Compressed and IsTar need of a file. They end with the magic of a tar's first header.
const HeadBytes = 257 + 5

// compressedMagic holds the first bytes of formats that users mistake for a tar or for code.
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

// IsTar reports whether a file that begins with head has the magic of a tar. Very old tars have none.
func IsTar(head []byte) bool {
	return len(head) >= HeadBytes && string(head[257:HeadBytes]) == "ustar"
}

// Compressed returns the compressed format of a file that begins with head, such as "gzip", or "" if there is none. A tar
// begins with the name of a file, which may be "BZh.txt", so a file with the magic of a tar is never compressed.
func Compressed(head []byte) string {
	if IsTar(head) {
		return ""
	}
	for _, m := range compressedMagic {
		if bytes.HasPrefix(head, []byte(m.prefix)) {
			return m.name
		}
	}
	if isLZMA(head) {
		return "lzma"
	}
	return ""
}

// isLZMA reports whether head begins as `xz --format=lzma` and `tar --lzma` write it. The format has no magic. It begins with
// properties, a dictionary size of 2^n or 2^n + 2^(n-1) bytes, and a file size, which is usually unknown (all ones). A tar
// with a file named "]" has zeros in their place.
func isLZMA(head []byte) bool {
	if len(head) < 13 || head[0] != 0x5d {
		return false
	}
	dictionary, size := binary.LittleEndian.Uint32(head[1:]), binary.LittleEndian.Uint64(head[5:])
	return bits.OnesCount32(dictionary) <= 2 && dictionary >= 1<<12 && (size == 1<<64-1 || size-1 < 1<<40)
}
