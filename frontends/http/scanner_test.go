package httpfrontend

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net/textproto"
	"strings"
	"testing"
	"testing/iotest"
)

// dissect reads a multipart body and says everything that can be said of it.
func dissect(next func() (textproto.MIMEHeader, io.Reader, error), size int) string {
	var said strings.Builder
	for {
		header, r, err := next()
		if err != nil {
			fmt.Fprintf(&said, "end %v", err)
			return said.String()
		}
		content, err := readIn(r, size)
		fmt.Fprintf(&said, "part %v %q %v\n", header, content, err)
		if err != nil {
			return said.String()
		}
	}
}

func readIn(r io.Reader, size int) ([]byte, error) {
	var all []byte
	buf := make([]byte, size)
	for {
		n, err := r.Read(buf)
		all = append(all, buf[:n]...)
		if errors.Is(err, io.EOF) && ended(err) {
			return all, nil
		}
		if err != nil {
			return all, err
		}
	}
}

func plainly(body []byte, boundary string, size int) string {
	m := multipart.NewReader(bytes.NewReader(body), boundary)
	return dissect(func() (textproto.MIMEHeader, io.Reader, error) {
		p, err := m.NextPart()
		if err != nil {
			return nil, nil, err
		}
		return p.Header, p, nil
	}, size)
}

func scanned(r io.Reader, boundary string, size int) string {
	return scannedBy(newScanner(r, boundary, scanBytes), boundary, size)
}

func scannedBy(s *scanner, boundary string, size int) string {
	m := multipart.NewReader(s, boundary)
	return dissect(func() (textproto.MIMEHeader, io.Reader, error) {
		p, err := s.next(m)
		if err != nil {
			return nil, nil, err
		}
		return p.Header, p, nil
	}, size)
}

// bodies are multipart bodies with the boundary "b".
func bodies() map[string]string {
	long := strings.Repeat("0123456789\r\n--", 6500)
	near := strings.Repeat("\r\n--bx", 13000)
	part := "Content-Disposition: form-data; name=tar\r\n\r\n"
	return map[string]string{
		"one long part":                       "--b\r\n" + part + long + "\r\n--b--\r\n",
		"two long parts":                      "--b\r\n" + part + long + "\r\n--b\r\n" + part + long + "\r\n--b--",
		"what is nearly a boundary, often":    "--b\r\n" + part + near + "\r\n--b--\r\n",
		"lines that end in a newline only":    "--b\n" + part + long + "\n--b--\n",
		"both line ends, the first decides":   "--b\r\n" + part + long + "\n--b--\r\n" + long + "\r\n--b--",
		"a boundary at a part's beginning":    "--b\r\n" + part + "--b--\r\n",
		"a short part before a long one":      "--b\r\n" + part + "{}\n1\n\r\n--b\r\n" + part + long + "\r\n--b\r\n" + part + "x\r\n--b--\r\n",
		"empty parts, then a long one":        "--b\r\n" + part + "\r\n--b\r\n" + part + "\r\n--b\r\n" + part + long + "\r\n--b--\r\n",
		"no part":                             "--b--\r\n",
		"a text before and behind":            "hello\r\n--b\r\n" + part + long + "\r\n--b--\r\nhello",
		"a part that is cut off":              "--b\r\n" + part + long,
		"a part that is cut in its boundary":  "--b\r\n" + part + long + "\r\n--",
		"a part that is cut at its boundary":  "--b\r\n" + part + long + "\r\n--b",
		"a part that is cut behind one dash":  "--b\r\n" + part + long + "\r\n--b-",
		"headers that are cut":                "--b\r\nContent-Disp",
		"headers of many lines":               "--b\r\nA: 1\r\n 2\r\n\t3\r\n" + part + long + "\r\n--b--",
		"no headers":                          "--b\r\n\r\n" + long + "\r\n--b--",
		"an encoding":                         "--b\r\nContent-Transfer-Encoding: quoted-printable\r\n\r\n" + strings.Repeat("a=3Db=\r\n", 9000) + "\r\n--b--",
		"space behind the boundary":           "--b  \r\n" + part + long + "\r\n--b \t\r\n" + part + long + "\r\n--b-- ",
		"carriage returns at the wrong place": "--b\r\n" + part + strings.Repeat("\r\r\n\r--b\r", 9000) + "\r\r\n--b--",
	}
}

func TestAScannedBodyHasTheSameParts(t *testing.T) {
	t.Parallel()
	for name, body := range bodies() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, boundary := range []string{"b", longBoundary} {
				body := strings.ReplaceAll(body, "--b", "--"+boundary)
				want := plainly([]byte(body), boundary, 512)
				for _, size := range []int{1, 512, 5000, 70000, 1 << 20} {
					if got := scanned(strings.NewReader(body), boundary, size); got != want {
						t.Errorf("boundary %q, reads of %d:\n got  %.300q\n want %.300q", boundary, size, got, want)
					}
				}
			}
			want := plainly([]byte(body), "b", 512)
			for how, r := range map[string]io.Reader{
				"byte by byte": iotest.OneByteReader(strings.NewReader(body)), "in halves": iotest.HalfReader(strings.NewReader(body)),
				"with its end": iotest.DataErrReader(strings.NewReader(body)),
			} {
				if got := scanned(r, "b", 9000); got != want {
					t.Errorf("a body that comes %s:\n got  %.300q\n want %.300q", how, got, want)
				}
			}
		})
	}
}

// longBoundary is as long as those of clients.
const longBoundary = "----------------------------b1b2b3b4b5b6"

func TestAScannedBodyFailsAsItsReaderDoes(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	body := bodies()["one long part"][:90000]
	got := scanned(io.MultiReader(strings.NewReader(body), iotest.ErrReader(broken)), "b", 9000)
	if !strings.HasSuffix(got, "broken\n") {
		t.Errorf("got …%q", got[len(got)-100:])
	}
}

// FuzzScanner compares a scanned body with mime/multipart's own reading of it. Its bodies are short: every read goes past
// mime/multipart, and the scanner reads little at once, so that many thousands are tried where long ones would need 64 KiB each.
func FuzzScanner(f *testing.F) {
	const longest = 1024
	for _, body := range bodies() {
		for _, long := range []string{strings.Repeat("0123456789\r\n--", 6500), strings.Repeat("\r\n--bx", 13000), strings.Repeat("a=3Db=\r\n", 9000), strings.Repeat("\r\r\n\r--b\r", 9000)} {
			body = strings.ReplaceAll(body, long, long[:100])
		}
		if len(body) > longest {
			f.Fatalf("a seed of %d bytes", len(body))
		}
		f.Add([]byte(body), "b", uint16(100), uint16(70))
		f.Add([]byte(strings.ReplaceAll(body, "--b", "--"+longBoundary)), longBoundary, uint16(100), uint16(70))
	}
	f.Fuzz(func(t *testing.T, body []byte, boundary string, size, step uint16) {
		if boundary == "" || len(boundary) > 70 || len(body) > longest {
			t.Skip()
		}
		n := int(size)%512 + 1
		s := newScanner(&stepReader{bytes.NewReader(body), int(step)%512 + 1}, boundary, 2*n)
		s.minBulk = 1
		if got, want := scannedBy(s, boundary, n), plainly(body, boundary, n); got != want {
			t.Errorf("got  %.300q\nwant %.300q", got, want)
		}
	})
}

// stepReader gives at most step bytes at once.
type stepReader struct {
	r    io.Reader
	step int
}

func (s *stepReader) Read(p []byte) (int, error) { return s.r.Read(p[:min(len(p), s.step)]) }
