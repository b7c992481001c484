package job

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/runner/protocol"
)

// line returns a record as a line of the file.
func line(tb testing.TB, r Record) string {
	tb.Helper()
	raw, err := json.Marshal(r)
	must(tb, err)
	return string(raw) + "\n"
}

func output(tb testing.TB, s executor.Stream, offset int64, data string) string {
	tb.Helper()
	return line(tb, Record{Event: &executor.Event{Body: executor.Output{Stream: s, Offset: offset, Data: []byte(data)}}})
}

// whole is the file of an Execution that has ended.
func whole(tb testing.TB) string {
	tb.Helper()
	code := 3
	return line(tb, Record{Begin: &Begin{Version: Version, ExecutionID: "exe_1"}}) +
		line(tb, Record{Event: &executor.Event{Body: executor.Started{PID: 7, Start: executor.StartExec}}}) +
		output(tb, executor.Stdout, 0, "hello \xff\x00") +
		output(tb, executor.Stderr, 0, "oops") +
		output(tb, executor.Stdout, 8, "world") +
		line(tb, Record{Artifact: &Artifact{Header: protocol.ArtifactHeader{Path: "a", Size: 5, Mode: 0o644}, Offset: 512}}) +
		line(tb, Record{Result: &executor.Result{Status: executor.StatusFailed, ExitCode: &code}})
}

// read reads all records. brief has one word for each.
func read(r *Reader) (brief []string, out [2]string, err error) {
	for {
		rec, err := r.Next()
		if err != nil {
			return brief, out, err
		}
		switch {
		case rec.Begin != nil:
			brief = append(brief, "begin")
		case rec.Artifact != nil:
			brief = append(brief, "artifact")
		case rec.Prepared != nil:
			brief = append(brief, "prepared")
		case rec.Result != nil:
			brief = append(brief, "result")
		case rec.Error != nil:
			brief = append(brief, "error")
		default:
			brief = append(brief, string(rec.Event.Body.Kind()))
			if o, ok := rec.Event.Body.(executor.Output); ok {
				n := protocol.StreamIndex(o.Stream)
				out[n] += string(o.Data)
			}
		}
	}
}

const wholeBrief = "begin started output output output artifact result"

func TestAReaderReturnsWhatWasWritten(t *testing.T) {
	t.Parallel()
	r := NewReader(strings.NewReader(whole(t)), executor.Resume{})
	brief, out, err := read(r)
	if !errors.Is(err, io.EOF) || !r.ended || strings.Join(brief, " ") != wholeBrief || out != [2]string{"hello \xff\x00world", "oops"} {
		t.Errorf("%q %q, %v, ended %v", brief, out, err, r.ended)
	}
}

func TestATruncatedFileIsAPrefix(t *testing.T) {
	t.Parallel()
	file := whole(t)
	all := strings.Fields(wholeBrief)
	for n := range len(file) {
		r := NewReader(strings.NewReader(file[:n]), executor.Resume{})
		brief, _, err := read(r)
		if want := strings.Count(file[:n], "\n"); !errors.Is(err, io.EOF) || r.ended || len(brief) != want || strings.Join(brief, " ") != strings.Join(all[:want], " ") {
			t.Fatalf("%d bytes: %q, %v, ended %v", n, brief, err, r.ended)
		}
	}
}

func TestAFileThatGrowsIsReadOn(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "events")
	out, err := os.Create(path)
	must(t, err)
	defer out.Close()
	in, err := os.Open(path)
	must(t, err)
	defer in.Close()
	r := NewReader(in, executor.Resume{})
	var brief []string
	for _, b := range []byte(whole(t)) {
		_, err := out.Write([]byte{b})
		must(t, err)
		more, _, err := read(r)
		if !errors.Is(err, io.EOF) {
			t.Fatal(err)
		}
		if brief = append(brief, more...); len(more) > 1 || len(more) == 1 && b != '\n' {
			t.Fatalf("%q after %q", more, b)
		}
	}
	if strings.Join(brief, " ") != wholeBrief || !r.ended {
		t.Error(brief)
	}
}

func TestOutputThatIsInTheLogIsLeftOut(t *testing.T) {
	t.Parallel()
	full := "hello \xff\x00world"
	for stdout := range int64(len(full) + 1) {
		r := NewReader(strings.NewReader(whole(t)), executor.Resume{Stdout: stdout, Stderr: 4})
		var first *executor.Output
		brief, out := []string{}, ""
		for {
			rec, err := r.Next()
			if err != nil {
				break
			}
			if rec.Event == nil {
				continue
			}
			brief = append(brief, string(rec.Event.Body.Kind()))
			if o, ok := rec.Event.Body.(executor.Output); ok {
				if out += string(o.Data); first == nil {
					first = &o
				}
			}
		}
		if out != full[stdout:] || first != nil && first.Offset != stdout || brief[0] != "started" || !r.ended {
			t.Errorf("from %d: %q, first %+v, %q", stdout, out, first, brief)
		}
	}
}

func TestUnknownRecordsAndEventsArePassedOn(t *testing.T) {
	t.Parallel()
	r := NewReader(strings.NewReader(`{"sign":{"a":1}}`+"\n"+`{"event":{"kind":"weather","body":{"b":2}}}`+"\n"), executor.Resume{})
	for _, want := range []executor.Unknown{{Name: "sign", Raw: []byte(`{"a":1}`)}, {Name: "weather", Raw: []byte(`{"b":2}`)}} {
		rec, err := r.Next()
		must(t, err)
		if got, ok := rec.Event.Body.(executor.Unknown); !ok || got.Name != want.Name || !bytes.Equal(got.Raw, want.Raw) {
			t.Errorf("%#v", rec.Event.Body)
		}
	}
}

func TestGarbageIsAnInternalError(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ text, wants string }{
		"no JSON":                 {"hello\n", "invalid character"},
		"zero bytes":              {"\x00\x00\n", "invalid character"},
		"an empty line":           {"\n", "unexpected end"},
		"no key":                  {"{}\n", "one key (got 0)"},
		"two keys":                {`{"begin":{},"result":{}}` + "\n", "one key (got 2)"},
		"null":                    {`{"result":null}` + "\n", "must not be null"},
		"another version":         {`{"begin":{"version":9}}` + "\n", "version 9"},
		"a wrong type":            {`{"result":7}` + "\n", "result: "},
		"no terminal status":      {`{"result":{"status":"running"}}` + "\n", "terminal status"},
		"an event without a body": {`{"event":{"kind":"output"}}` + "\n", "event: "},
		"an event of the engine":  {`{"event":{"kind":"finished","body":{}}}` + "\n", "cannot write finished"},
		"no such stream":          {output(t, "stdin", 0, "x"), "stdout or stderr"},
		"a negative offset":       {output(t, executor.Stdout, -1, "x"), "not negative"},
		"output without data":     {output(t, executor.Stdout, 0, ""), "1 to"},
		"output that is too long": {output(t, executor.Stdout, 0, strings.Repeat("x", executor.MaxOutputData+1)), "1 to"},
		"a gap":                   {output(t, executor.Stdout, 0, "ab") + output(t, executor.Stdout, 3, "d"), "gap between 2 and 3"},
		"a negative artifact":     {`{"artifact":{"header":{"path":"a","size":-1},"offset":0}}` + "\n", "artifact: "},
		"a line that is too long": {strings.Repeat("x", MaxRecord+2), "at most"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := NewReader(strings.NewReader(c.text+whole(t)), executor.Resume{})
			_, _, err := read(r)
			if executor.CodeOf(err) != executor.Internal || !strings.Contains(err.Error(), c.wants) || !strings.Contains(err.Error(), "byte") {
				t.Errorf("%v", err)
			}
			if _, again := r.Next(); again == nil || again.Error() != err.Error() {
				t.Errorf("then %v", again)
			}
		})
	}
}

func TestTheLongestLineIsRead(t *testing.T) {
	t.Parallel()
	for _, more := range []int{0, 1} {
		head, tail := `{"error":{"code":"internal","message":"`, `"}}`
		text := head + strings.Repeat("x", MaxRecord-len(head)-len(tail)+more) + tail + "\n"
		rec, err := NewReader(strings.NewReader(text), executor.Resume{}).Next()
		if more == 0 && (err != nil || rec.Error == nil) || more == 1 && executor.CodeOf(err) != executor.Internal {
			t.Errorf("%d bytes more than allowed: %v", more, err)
		}
	}
}

func TestARecordThatCannotBeIsFoundInTheFile(t *testing.T) {
	t.Parallel()
	begin, _, _ := strings.Cut(whole(t), "\n")
	_, _, err := read(NewReader(strings.NewReader(begin+"\n"+"garbage\n"), executor.Resume{}))
	if want := fmt.Sprintf("record at byte %d:", len(begin)+1); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %q", err, want)
	}
}

// breaking fails after some bytes.
type breaking struct {
	io.Reader
	err error
}

func (b breaking) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	if errors.Is(err, io.EOF) {
		err = b.err
	}
	return n, err
}

func TestAnErrorOfTheStreamIsReturnedAsItIs(t *testing.T) {
	t.Parallel()
	cut := errors.New("the connection is gone")
	r := NewReader(breaking{strings.NewReader(whole(t)[:100]), cut}, executor.Resume{})
	brief, _, err := read(r)
	if !errors.Is(err, cut) || len(brief) != 1 {
		t.Error(brief, err)
	}
}

// FuzzReader: whatever the file has, the Reader ends, keeps the order of the output, and takes no more memory than a line may.
func FuzzReader(f *testing.F) {
	f.Add([]byte(whole(f)), 0, uint16(0))
	f.Add([]byte(whole(f)), 5, uint16(7))
	f.Add([]byte(`{"sign":1}`+"\n"+`{"event":{"kind":"x"}}`+"\n{"), 0, uint16(3))
	f.Add([]byte(`{"prepared":{"interpreter":"/p"}}`+"\n\n"), 0, uint16(1))
	f.Fuzz(func(t *testing.T, file []byte, have int, cut uint16) {
		if have < 0 {
			return
		}
		one := readFuzzed(t, file, executor.Resume{Stdout: int64(have)})
		// A file that grows meanwhile has the same records.
		at := min(int(cut), len(file))
		var grown bytes.Buffer
		grown.Write(file[:at])
		r := newReader(&grown, executor.Resume{Stdout: int64(have)}, 64)
		two := drain(t, r)
		grown.Write(file[at:])
		two += drain(t, r)
		if one != two {
			t.Fatalf("at once %q, in two parts %q", one, two)
		}
	})
}

func readFuzzed(t *testing.T, file []byte, have executor.Resume) string {
	t.Helper()
	return drain(t, newReader(bytes.NewReader(file), have, 256))
}

// drain returns all records as text.
func drain(t *testing.T, r *Reader) string {
	t.Helper()
	var b strings.Builder
	for {
		before := r.have
		rec, err := r.Next()
		if cap(r.line) > 2*(MaxRecord+64<<10) {
			t.Fatalf("%d bytes kept", cap(r.line))
		}
		if err != nil {
			if !errors.Is(err, io.EOF) && executor.CodeOf(err) != executor.Internal {
				t.Fatal(err)
			}
			return b.String()
		}
		if rec.Event != nil {
			if o, ok := rec.Event.Body.(executor.Output); ok && o.Offset != before[protocol.StreamIndex(o.Stream)] {
				t.Fatalf("output at %d after %+v", o.Offset, before)
			}
		}
		fmt.Fprintf(&b, "%+v %+v %+v %+v %+v %+v\n", rec.Begin, rec.Event, rec.Artifact, rec.Prepared, rec.Result != nil, rec.Error)
	}
}
