//go:build linux

package archive

import (
	"archive/tar"
	"bytes"
	"fmt"
	"strings"
	"testing"
)

// hostile are the archives that nobody may unpack, with what the message must name. They are also the seeds of the fuzz test.
func hostile(tb testing.TB) map[string]struct {
	data []byte
	want string
} {
	tb.Helper()
	all := map[string]struct {
		data []byte
		want string
	}{}
	add := func(name, want string, data []byte) {
		all[name] = struct {
			data []byte
			want string
		}{data, want}
	}
	good := archive{file("good.txt", strings.Repeat("x", 2000))}.bytes(tb)
	for name, c := range map[string]struct {
		want string
		a    archive
	}{
		"dot dot":                           {"../evil", archive{file("../evil", "x")}},
		"dot dot inside":                    {"a/../../evil", archive{file("a/../../evil", "x")}},
		"dot dot that stays":                {"a/../b", archive{file("a/../b", "x")}},
		"only dot dot":                      {"..", archive{dir("..")}},
		"an absolute name":                  {"/evil", archive{file("/evil", "x")}},
		"a folder outside":                  {"../other", archive{dir("../other")}},
		"an absolute link":                  {`it leads to "/etc/passwd"`, archive{link("l", "/etc/passwd")}},
		"a link out":                        {"l", archive{link("l", "../secret")}},
		"a link out from below":             {"a/b/l", archive{link("a/b/l", "../../../secret")}},
		"a link to the folder above":        {"l", archive{link("l", "..")}},
		"an empty link":                     {"l", archive{{&tar.Header{Typeflag: tar.TypeSymlink, Name: "l"}, ""}}},
		"a file through a link":             {"l/f", archive{dir("d/"), link("l", "d"), file("l/f", "x")}},
		"a folder through a link":           {"l/f", archive{dir("d/"), link("l", "d"), dir("l/f/")}},
		"a link through a link":             {"x/l", archive{dir("a/"), link("x", "a"), link("x/l", "..")}},
		"links that leave together":         {"c", archive{dir("a/"), link("a/b", ".."), link("c", "a/b/../secret")}},
		"a hard link out":                   {"h", archive{hard("h", "../secret")}},
		"an absolute hard link":             {"h", archive{hard("h", "/etc/passwd")}},
		"a hard link to nothing":            {"h", archive{hard("h", "nothing")}},
		"a hard link to a folder":           {"h", archive{dir("d/"), hard("h", "d")}},
		"a hard link to a link":             {"h", archive{link("l", "f"), hard("h", "l")}},
		"a hard link through a link":        {"h", archive{file("d/f", "x"), link("l", "d"), hard("h", "l/f")}},
		"a hard link to itself":             {"f", archive{file("f", "x"), hard("f", "f")}},
		"a character device":                {"dev", archive{special("dev", tar.TypeChar)}},
		"a block device":                    {"dev", archive{special("dev", tar.TypeBlock)}},
		"a FIFO":                            {"pipe", archive{special("pipe", tar.TypeFifo)}},
		"an unknown type":                   {"odd", archive{special("odd", 'Z')}},
		"a file over a folder with files":   {"a", archive{file("a/b", "x"), file("a", "x")}},
		"a link over a folder with files":   {"a", archive{file("a/b", "x"), link("a", "b")}},
		"a file below a file":               {"a/b", archive{file("a", "x"), file("a/b", "x")}},
		"a file for the root":               {".", archive{file(".", "x")}},
		"a link for the root":               {".", archive{link("./", "x")}},
		"more than the disk limit":          {"big", archive{file("big", strings.Repeat("x", 1<<20+1))}},
		"more than the disk limit together": {"b", archive{file("a", strings.Repeat("x", 1<<19)), file("b", strings.Repeat("x", 1<<19+1))}},
		"a name that is not UTF-8":          {"UTF-8", archive{{&tar.Header{Typeflag: tar.TypeReg, Name: "a\xffb", Mode: 0o644, Format: tar.FormatGNU}, ""}}},
		"a part of a name that is too long": {"at most 255", archive{file(strings.Repeat("n", 300), "x")}},
		"a name that is too long":           {"bytes", archive{file(strings.Repeat("name/", 1000)+"x", "x")}},
		"too deep":                          {"deep", archive{file(strings.Repeat("d/", 300)+"x", "x")}},
	} {
		add(name, c.want, c.a.bytes(tb))
	}
	add("nothing at all", "empty", nil)
	add("a few bytes", "archive ends", []byte("abc"))
	add("cut off in a header", "archive ends", good[:300])
	add("cut off in a file", "good.txt", good[:1024])
	add("cut off before the end mark", "good.txt", good[:512+2048])
	add("garbage", "not a tar", bytes.Repeat([]byte("garbage!"), 200))
	add("text", "archive ends", []byte("print('hello')\n"))
	add("gzip", "gzip", append([]byte{0x1f, 0x8b, 8, 0}, make([]byte, 1000)...))
	add("zip", "zip", append([]byte("PK\x03\x04"), make([]byte, 1000)...))
	add("zstd", "zstd", append([]byte{0x28, 0xb5, 0x2f, 0xfd}, make([]byte, 1000)...))
	add("xz", "xz", append([]byte("\xfd7zXZ\x00"), make([]byte, 1000)...))
	add("bzip2", "bzip2", append([]byte("BZh91AY&SY"), make([]byte, 1000)...))
	broken := bytes.Clone(good)
	broken[150] ^= 1
	add("a wrong checksum", "not a tar", broken)
	var two bytes.Buffer
	two.Write(good[:512+2048])
	two.Write(broken)
	add("a wrong checksum later", "good.txt", two.Bytes())
	add("a sparse file that lies", "sparse", sparse(tb))
	for name, c := range rawHostile() {
		add(name, c.want, c.data)
	}
	return all
}

// sparse is a file of one terabyte that takes no room in the archive.
func sparse(tb testing.TB) []byte {
	tb.Helper()
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	const sparseMap = "1\n1099511627000\n0\n"
	data := sparseMap + strings.Repeat("\x00", 512-len(sparseMap))
	records := ""
	for _, kv := range []string{"GNU.sparse.major=1", "GNU.sparse.minor=0", "GNU.sparse.name=sparse", "GNU.sparse.realsize=1099511627776"} {
		n := len(kv) + 3
		for len(fmt.Sprint(n))+len(kv)+2 != n {
			n = len(fmt.Sprint(n)) + len(kv) + 2
		}
		records += fmt.Sprintf("%d %s\n", n, kv)
	}
	buf.Write(rawHeader("PaxHeaders.0/sparse", 'x', int64(len(records))))
	buf.WriteString(records + strings.Repeat("\x00", 512-len(records)%512))
	buf.Write(rawHeader("sparse", '0', int64(len(data))))
	buf.WriteString(data)
	if err := w.Close(); err != nil {
		tb.Fatal(err)
	}
	return buf.Bytes()
}

// rawHeader writes what tar.Writer refuses to.
func rawHeader(name string, kind byte, size int64) []byte {
	h := make([]byte, 512)
	copy(h, name)
	copy(h[100:], "0000644\x000000000\x000000000\x00")
	copy(h[124:], fmt.Sprintf("%011o\x00%011o\x00", size, 0))
	copy(h[148:], "        ")
	h[156] = kind
	copy(h[257:], "ustar\x0000")
	sum := 0
	for _, b := range h {
		sum += int(b)
	}
	copy(h[148:], fmt.Sprintf("%06o\x00 ", sum))
	return h
}
