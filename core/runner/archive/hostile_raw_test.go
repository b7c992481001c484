//go:build linux

package archive

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// raw is an archive made header by header: what tar.Writer would not write.
type raw []byte

// entry adds an entry; patch may change its header before the checksum.
func (r raw) entry(name string, kind byte, data string, patch ...func(h []byte)) raw {
	h := rawHeader(name, kind, int64(len(data)))
	for _, p := range patch {
		p(h)
	}
	copy(h[148:], "        ")
	sum := 0
	for _, b := range h {
		sum += int(b)
	}
	copy(h[148:], fmt.Sprintf("%06o\x00 ", sum))
	return append(append(slices.Clip(r), h...), data+strings.Repeat("\x00", (512-len(data)%512)%512)...)
}

func (r raw) pax(records ...string) raw {
	var b strings.Builder
	for _, kv := range records {
		n := len(kv) + 3
		for len(fmt.Sprint(n))+len(kv)+2 != n {
			n = len(fmt.Sprint(n)) + len(kv) + 2
		}
		fmt.Fprintf(&b, "%d %s\n", n, kv)
	}
	return r.entry("PaxHeaders.0/x", 'x', b.String())
}

// gnu adds a GNU header that gives the next entry a long name ('L') or a long target ('K').
func (r raw) gnu(kind byte, name string) raw {
	return r.entry("././@LongLink", kind, name+"\x00", gnuMagic)
}

func (r raw) end() []byte { return append(slices.Clip(r), make([]byte, 1024)...) }

func gnuMagic(h []byte) { copy(h[257:], "ustar  \x00") }

// at writes text into a header.
func at(offset int, text string) func([]byte) { return func(h []byte) { copy(h[offset:], text) } }

const (
	sizeField, mtimeField, linkField, magicField, prefixField = 124, 136, 157, 257, 345
	sparseField, realSizeField                                = 386, 483
)

// base256 is a number as GNU tar writes large and negative ones.
func base256(n int64) string {
	b := make([]byte, 12)
	if n < 0 {
		b[0], b[1], b[2], b[3] = 0xff, 0xff, 0xff, 0xff
	}
	binary.BigEndian.PutUint64(b[4:], uint64(n)) //nolint:gosec // two's complement
	b[0] |= 0x80
	return string(b)
}

func octals(n ...int64) string {
	var b strings.Builder
	for _, v := range n {
		fmt.Fprintf(&b, "%011o\x00", v)
	}
	return b.String()
}

// sparseMap is the map of a PAX sparse file of format 1.0, padded to a block.
func sparseMap(numbers ...int64) string {
	var b strings.Builder
	for _, n := range numbers {
		fmt.Fprintf(&b, "%d\n", n)
	}
	return b.String() + strings.Repeat("\x00", 512-b.Len()%512)
}

// rawHostile are more archives that nobody may unpack.
func rawHostile() map[string]struct {
	data []byte
	want string
} {
	sparse := func(name, realSize, data string) raw {
		return raw(nil).pax("GNU.sparse.major=1", "GNU.sparse.minor=0", "GNU.sparse.name="+name, "GNU.sparse.realsize="+realSize).entry("GNUSparseFile.0/x", '0', data)
	}
	all := map[string]struct {
		data []byte
		want string
	}{}
	for name, c := range map[string]struct {
		want string
		r    raw
	}{
		"a size in base 256 beyond the disk":     {"exceed disk_mb", raw(nil).entry("f", '0', "x", at(sizeField, base256(1<<62)))},
		"a negative size in base 256":            {"not a tar", raw(nil).entry("f", '0', "x", at(sizeField, base256(-512)))},
		"a size of all ones":                     {"not a tar", raw(nil).entry("f", '0', "x", at(sizeField, strings.Repeat("\xff", 12)))},
		"a negative size in octal":               {"not a tar", raw(nil).entry("f", '0', "x", at(sizeField, "-0000000001\x00"))},
		"a size that is no number":               {"not a tar", raw(nil).entry("f", '0', "x", at(sizeField, "zzzzzzzzzzz\x00"))},
		"a GNU long name of a megabyte":          {"not a tar", raw(nil).gnu('L', strings.Repeat("a", 2<<20)).entry("f", '0', "x")},
		"a GNU long name beyond a path":          {"bytes", raw(nil).gnu('L', strings.Repeat("a/", 3000)+"x").entry("f", '0', "x")},
		"a GNU long name that leaves":            {"../x", raw(nil).gnu('L', strings.Repeat("a/", 60)+strings.Repeat("../", 61)+"x").entry("f", '0', "x")},
		"a GNU long link that leaves":            {"f", raw(nil).gnu('K', strings.Repeat("../", 60)+"etc/passwd").entry("f", '2', "", gnuMagic)},
		"a GNU long link beyond a path":          {"f", raw(nil).gnu('K', strings.Repeat("a/", 3000)+"x").entry("f", '2', "", gnuMagic)},
		"a PAX value of megabytes":               {"not a tar", raw(nil).pax("comment="+strings.Repeat("x", 2<<20)).entry("f", '0', "x")},
		"a PAX record that lies about itself":    {"not a tar", raw(nil).entry("p", 'x', "999999999999 a=b\n").entry("f", '0', "x")},
		"a PAX record of negative length":        {"not a tar", raw(nil).entry("p", 'x', "-5 a=b\n").entry("f", '0', "x")},
		"a PAX size beyond the disk":             {"exceed disk_mb", raw(nil).pax("size=99999999999999999").entry("f", '0', "x")},
		"a negative PAX size":                    {"not a tar", raw(nil).pax("size=-1").entry("f", '0', "x")},
		"a PAX path that leaves":                 {"../evil", raw(nil).pax("path=../evil").entry("f", '0', "x")},
		"an absolute PAX path":                   {"/evil", raw(nil).pax("path=/evil").entry("f", '0', "x")},
		"a PAX path with a NUL":                  {"not a tar", raw(nil).pax("path=a\x00b").entry("f", '0', "x")},
		"a PAX link that leaves":                 {"f", raw(nil).pax("linkpath=/etc/passwd").entry("f", '2', "", at(linkField, "inside"))},
		"a prefix that leaves":                   {"../p/f", raw(nil).entry("f", '0', "x", at(prefixField, "../p"))},
		"an absolute prefix":                     {"/p/f", raw(nil).entry("f", '0', "x", at(prefixField, "/p"))},
		"a name of slashes":                      {"//", raw(nil).entry("//", '0', "x")},
		"an entry without a name":                {"must have a name", raw(nil).entry("", '0', "x")},
		"a hard link to a later file":            {"h", raw(nil).entry("h", '1', "", at(linkField, "f")).entry("f", '0', "x")},
		"a hard link with an empty target":       {"h", raw(nil).entry("h", '1', "")},
		"a GNU directory dump":                   {"unknown type", raw(nil).entry("d", 'D', "", gnuMagic)},
		"a continuation of another archive":      {"unknown type", raw(nil).entry("d", 'M', "x", gnuMagic)},
		"a single block of zeros in the middle":  {"not a tar", append(raw(nil).entry("f", '0', "x"), raw(make([]byte, 512)).entry("g", '0', "x")...)},
		"an old GNU sparse file of terabytes":    {"exceed disk_mb", raw(nil).entry("s", 'S', "hello", gnuMagic, at(sparseField, octals(0, 5)), at(realSizeField, octals(1<<32)))},
		"an old GNU sparse file that overlaps":   {"not a tar", raw(nil).entry("s", 'S', "hellohello", gnuMagic, at(sparseField, octals(0, 5, 2, 5)), at(realSizeField, octals(100)))},
		"an old GNU sparse file beyond its end":  {"not a tar", raw(nil).entry("s", 'S', "hello", gnuMagic, at(sparseField, octals(100, 5)), at(realSizeField, octals(10)))},
		"an old GNU sparse file without data":    {"s", raw(nil).entry("s", 'S', "x", gnuMagic, at(sparseField, octals(0, 500)), at(realSizeField, octals(1000)))},
		"a sparse file whose name leaves":        {"../s", sparse("../s", "5", sparseMap(1, 0, 5)+"hello")},
		"a sparse file of negative size":         {"not a tar", sparse("s", "-5", sparseMap(1, 0, 5)+"hello")},
		"a sparse file whose offsets run over":   {"not a tar", sparse("s", "100", sparseMap(1, 1<<62, 1<<62)+"hello")},
		"a sparse file with a map without end":   {"archive ends", sparse("s", "100", sparseMap(99999999, 1))},
		"a sparse map of 0.1 that runs over":     {"not a tar", raw(nil).pax("GNU.sparse.size=10", "GNU.sparse.numblocks=1", "GNU.sparse.map=9223372036854775807,5", "GNU.sparse.name=s").entry("f", '0', "hello")},
		"a sparse size of 0.0 beyond the disk":   {"exceed disk_mb", raw(nil).pax("GNU.sparse.size=1099511627776", "GNU.sparse.numblocks=1", "GNU.sparse.offset=0", "GNU.sparse.numbytes=5").entry("f", '0', "hello")},
		"links that leave together, written raw": {"d/v", raw(nil).entry("d/", '5', "").entry("d/u", '2', "", at(linkField, "..")).entry("d/v", '2', "", at(linkField, "u/.."))},
	} {
		all[name] = struct {
			data []byte
			want string
		}{c.r.end(), c.want}
	}
	return all
}

func TestRawArchivesThatAreGood(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("long/", 40) + "x"
	for name, c := range map[string]struct {
		data []byte
		want string
	}{
		"two archives, of which one counts":  {append(raw(nil).entry("a", '0', "1").end(), raw(nil).entry("b", '0', "2").end()...), "a=1"},
		"garbage behind the end":             {append(raw(nil).entry("a", '0', "1").end(), strings.Repeat("garbage", 1000)...), "a=1"},
		"a size in base 256":                 {raw(nil).entry("a", '0', "123", at(sizeField, base256(3))).entry("b", '0', "2").end(), "a=123 b=2"},
		"of long names the last one":         {raw(nil).gnu('L', "../x").gnu('L', "/y").gnu('L', "z").entry("a", '0', "1").end(), "z=1"},
		"a long name with nobody behind it":  {raw(nil).entry("a", '0', "1").gnu('L', "../x").end(), "a=1"},
		"a name that ends at its NUL":        {raw(nil).entry("a\x00/../../b", '0', "1").end(), "a=1"},
		"no magic":                           {raw(nil).entry("a", 0, "1", at(magicField, strings.Repeat("\x00", 8))).entry("d/", 0, "", at(magicField, strings.Repeat("\x00", 8))).end(), "a=1 d/"},
		"a contiguous file":                  {raw(nil).entry("a", '7', "1").end(), "a=1"},
		"times that no file system has":      {raw(nil).entry("a", '0', "1", at(mtimeField, base256(1<<62))).entry("b", '0', "2", at(mtimeField, base256(-1<<62))).entry("c", '0', "3", at(mtimeField, base256(-1))).end(), "a=1 b=2 c=3"},
		"a folder, a file, a folder, a link": {raw(nil).entry("a/", '5', "").entry("a", '0', "1").entry("a/", '5', "").entry("a", '2', "", at(linkField, "b")).entry("a/", '5', "").entry("a/b", '0', "2").end(), "a/ a/b=2"},
		"a hard link that has a size":        {raw(nil).entry("a", '0', "1").entry("h", '1', "", at(linkField, "a"), at(sizeField, octals(1))).entry("b", '0', "2").end(), "a=1 b=2 h=1"},
		"a hard link to a long name":         {raw(nil).gnu('L', long).entry("a", '0', "1").gnu('K', long).entry("h", '1', "", gnuMagic).entry("b", '0', "2").end(), ""},
		"an old GNU sparse file":             {raw(nil).entry("s", 'S', "heo", gnuMagic, at(sparseField, octals(0, 2, 4, 1)), at(realSizeField, octals(6))).entry("b", '0', "2").end(), "b=2 s=he\x00\x00o\x00"},
		"a sparse file of format 0.0":        {raw(nil).pax("GNU.sparse.size=6", "GNU.sparse.numblocks=2", "GNU.sparse.offset=0", "GNU.sparse.numbytes=2", "GNU.sparse.offset=4", "GNU.sparse.numbytes=1").entry("s", '0', "heo").entry("b", '0', "2").end(), "b=2 s=he\x00\x00o\x00"},
		"a sparse file of format 0.1":        {raw(nil).pax("GNU.sparse.size=6", "GNU.sparse.numblocks=2", "GNU.sparse.map=0,2,4,1", "GNU.sparse.name=s").entry("f", '0', "heo").entry("b", '0', "2").end(), "b=2 s=he\x00\x00o\x00"},
		"a sparse file of format 1.0":        {raw(nil).pax("GNU.sparse.major=1", "GNU.sparse.minor=0", "GNU.sparse.name=s", "GNU.sparse.realsize=6").entry("f", '0', sparseMap(2, 0, 2, 4, 1)+"heo").entry("b", '0', "2").end(), "b=2 s=he\x00\x00o\x00"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newTarget(t)
			_, err := s.unpack(t, strings.NewReader(string(c.data)))
			var bad *InputError
			if err != nil {
				t.Fatalf("%v (the archive's fault: %v)", err, errors.As(err, &bad))
			}
			s.check(t)
			if got := s.tree(t); got != c.want && c.want != "" {
				t.Errorf("got  %q\nwant %q", got, c.want)
			}
		})
	}
}
