package plugintest

import (
	"archive/zip"
	"bytes"
	"compress/flate"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"slices"
	"strings"
)

// Wheel returns the content of a wheel file: a Python package for the tag, for example py3-none-any, with the given files, by path, and
// the given requirements.
func Wheel(module, version, tag string, files map[string]string, requires ...string) []byte {
	info := fmt.Sprintf("%s-%s.dist-info/", module, version)
	all := map[string]string{}
	for path, text := range files {
		all[path] = text
	}
	meta := fmt.Sprintf("Metadata-Version: 2.1\nName: %s\nVersion: %s\n", module, version)
	for _, r := range requires {
		meta += "Requires-Dist: " + r + "\n"
	}
	all[info+"METADATA"] = meta
	all[info+"WHEEL"] = "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: " + tag + "\n"
	var names []string
	var record strings.Builder
	for path, text := range all {
		names = append(names, path)
		sum := sha256.Sum256([]byte(text))
		fmt.Fprintf(&record, "%s,sha256=%s,%d\n", path, base64.RawURLEncoding.EncodeToString(sum[:]), len(text))
	}
	slices.Sort(names)
	all[info+"RECORD"] = record.String() + info + "RECORD,,\n"
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for _, path := range append(names, info+"RECORD") {
		h := &zip.FileHeader{Name: path}
		h.SetMode(0o644)
		if strings.Contains(path, "/scripts/") {
			h.SetMode(0o755)
		}
		packed, method := pack(all[path])
		h.Method, h.CRC32 = method, crc32.ChecksumIEEE([]byte(all[path]))
		h.CompressedSize64, h.UncompressedSize64 = uint64(len(packed)), uint64(len(all[path]))
		f, err := z.CreateRaw(h)
		if err != nil {
			panic(err)
		}
		if _, err := f.Write(packed); err != nil {
			panic(err)
		}
	}
	if err := z.Close(); err != nil {
		panic(err)
	}
	return b.Bytes()
}

// pack returns the content of a file in a wheel. The race detector makes compression slow, so only many zeros are compressed, a piece
// at a time.
func pack(text string) (packed []byte, method uint16) {
	const large = 1 << 20
	if len(text) <= large || strings.Trim(text, "\x00") != "" {
		return []byte(text), zip.Store
	}
	var b bytes.Buffer
	z, err := flate.NewWriter(&b, flate.BestSpeed)
	if err != nil {
		panic(err)
	}
	write := func(text string, end func() error) []byte {
		b.Reset()
		_, err := io.WriteString(z, text)
		if err := errors.Join(err, end()); err != nil {
			panic(err)
		}
		return bytes.Clone(b.Bytes())
	}
	piece := write(strings.Repeat("\x00", large), z.Flush) // ends at a whole byte
	z.Reset(&b)
	return append(bytes.Repeat(piece, len(text)/large), write(text[len(text)/large*large:], z.Close)...), zip.Deflate
}
