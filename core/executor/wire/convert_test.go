package wire

import (
	"archive/tar"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/wire/internal/pb"
)

// filler sets every field that it can reach to a value that is not zero and differs from all others, so that a field
// that types.proto lacks or that convert.go mixes up shows.
type filler struct {
	n    int64
	skip map[string]bool
}

func (f *filler) fill(t *testing.T, path string, v reflect.Value) {
	t.Helper()
	if f.skip[path] {
		return
	}
	f.n++
	switch v.Interface().(type) {
	case time.Time:
		v.Set(reflect.ValueOf(time.Unix(1_800_000_000+f.n, 123_456_000+f.n).UTC()))
		return
	case json.RawMessage:
		v.SetBytes(fmt.Appendf(nil, `{"n":%d}`, f.n))
		return
	}
	switch v.Kind() {
	case reflect.String:
		// Not UTF-8: Linux promises none.
		v.SetString(fmt.Sprintf("%s\xff%d", path, f.n))
	case reflect.Int, reflect.Int64:
		v.SetInt(f.n)
	case reflect.Uint8:
		v.SetUint(uint64(f.n % 251)) //nolint:gosec // positive
	case reflect.Uint32, reflect.Uint64:
		v.SetUint(uint64(f.n)) //nolint:gosec // positive
	case reflect.Float64:
		v.SetFloat(float64(f.n) + 0.5)
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		f.fill(t, path, v.Elem())
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		for i := range v.Len() {
			f.fill(t, path, v.Index(i))
		}
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		for range 2 {
			key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
			f.fill(t, path, key)
			f.fill(t, path, value)
			v.SetMapIndex(key, value)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			f.fill(t, path+"."+v.Type().Field(i).Name, v.Field(i))
		}
	default:
		t.Fatalf("%s: the filler does not know %s: teach it, and convert.go", path, v.Kind())
	}
}

// crossing sends a value through its message and the message's bytes.
type crossing struct {
	name  string
	cross func(t *testing.T, f *filler)
	// skip names fields that do not cross, and why is said beside it.
	skip []string
}

func crosses[T any, M proto.Message](name string, to func(T) M, from func(M) T, skip ...string) crossing {
	return crossing{name: name, skip: skip, cross: func(t *testing.T, f *filler) {
		t.Helper()
		var in T
		f.fill(t, name, reflect.ValueOf(&in).Elem())
		check(t, in, to, from)
		var zero T
		check(t, zero, to, from)
	}}
}

func check[T any, M proto.Message](t *testing.T, in T, to func(T) M, from func(M) T) {
	t.Helper()
	raw, err := proto.Marshal(to(in))
	if err != nil {
		t.Fatalf("marshal: %v", err)
	}
	var m M
	m, _ = m.ProtoReflect().New().Interface().(M)
	if err := proto.Unmarshal(raw, m); err != nil {
		t.Fatalf("unmarshal: %v", err)
	}
	if out := from(m); !reflect.DeepEqual(in, out) {
		t.Errorf("did not come back as it went:\n in  %+v\n out %+v", in, out)
	}
}

func mustEvent(e executor.Event) *pb.Event {
	m, err := toEvent(e)
	if err != nil {
		panic(err)
	}
	return m
}

// body crosses a Body inside an Event.
func body[T executor.Body](name string, skip ...string) crossing {
	return crosses(name,
		func(b T) *pb.Event { return mustEvent(executor.Event{Seq: 7, Time: time.Unix(1, 2).UTC(), Body: b}) },
		func(m *pb.Event) T {
			e := fromEvent(m)
			b, _ := e.Body.(T)
			return b
		}, skip...)
}

func TestEveryFieldOfTheContractCrosses(t *testing.T) {
	t.Parallel()
	cases := []crossing{
		crosses("Limits", to[pb.Limits, executor.Limits], from[executor.Limits, pb.Limits]),
		crosses("Spec", to[pb.Spec, executor.Spec], from[executor.Spec, pb.Spec]),
		crosses("Execution", to[pb.Execution, executor.Execution], from[executor.Execution, pb.Execution]),
		crosses("Filter", to[pb.Filter, executor.Filter], from[executor.Filter, pb.Filter]),
		crosses("Session", to[pb.Session, executor.Session], from[executor.Session, pb.Session]),
		crosses("OpenedSession", to[pb.OpenedSession, executor.OpenedSession], from[executor.OpenedSession, pb.OpenedSession]),
		crosses("Variable", to[pb.Variable, executor.Variable], from[executor.Variable, pb.Variable]),
		crosses("File", to[pb.File, executor.File], from[executor.File, pb.File]),
		crosses("Script", to[pb.Script, executor.Script], from[executor.Script, pb.Script]),
		crosses("Principal", to[pb.Principal, executor.Principal], from[executor.Principal, pb.Principal]),
		crosses("Info", to[pb.Info, executor.Info], from[executor.Info, pb.Info]),
		crosses("Capabilities", to[pb.Capabilities, executor.Capabilities], from[executor.Capabilities, pb.Capabilities]),
		// Sources are announced and streamed: see TestASourceCrosses….
		crosses("Job", to[pb.Job, executor.Job], from[executor.Job, pb.Job], "Job.Workspace", "Job.Stdin"),
		crosses("Resume", to[pb.Resume, executor.Resume], from[executor.Resume, pb.Resume]),
		crosses("Started", to[pb.Started, executor.Started], from[executor.Started, pb.Started]),
		crosses("Result", to[pb.Result, executor.Result], from[executor.Result, pb.Result]),
		body[executor.Queued]("Queued"),
		body[executor.Progress]("Progress"),
		body[executor.Started]("Started"),
		body[executor.Output]("Output"),
		body[executor.Display]("Display"),
		body[executor.Finished]("Finished"),
		body[executor.Unknown]("Unknown"),
		// Xattrs is deprecated: PAXRecords has the same under other names.
		crosses("Header", to[pb.ArtifactBegin, tar.Header], from[tar.Header, pb.ArtifactBegin], "Header.Xattrs"),
		// Open is the stream itself.
		crosses("Source", to[pb.Source, executor.Source], from[executor.Source, pb.Source], "Source.Open"),
		// A cause does not leave its process.
		crosses("Error", func(e executor.Error) *pb.Error {
			if e.Code == "" {
				return nil
			}
			e.Code = executor.Conflict
			return toError(&e)
		}, func(m *pb.Error) executor.Error {
			if m.GetCode() == "" {
				return executor.Error{}
			}
			e, _ := errors.AsType[*executor.Error](fromError(m))
			e.Code = "Error.Code\xff2"
			return *e
		}, "Error.Err"),
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			f := &filler{skip: map[string]bool{}}
			for _, s := range c.skip {
				f.skip[s] = true
			}
			c.cross(t, f)
		})
	}
}

func TestAbsentIsNotEmpty(t *testing.T) {
	t.Parallel()
	zero, no := 0, false
	check(t, executor.Result{ExitCode: &zero}, to[pb.Result, executor.Result], from[executor.Result, pb.Result])
	check(t, executor.Result{Failure: &executor.Failure{}}, to[pb.Result, executor.Result], from[executor.Result, pb.Result])
	check(t, executor.Spec{Detect: &no}, to[pb.Spec, executor.Spec], from[executor.Spec, pb.Spec])
	check(t, executor.Execution{Started: &executor.Started{}}, to[pb.Execution, executor.Execution], from[executor.Execution, pb.Execution])
	check(t, executor.Execution{Result: &executor.Result{}}, to[pb.Execution, executor.Execution], from[executor.Execution, pb.Execution])
	check(t, executor.Limits{Timeout: executor.TimeoutMaximum, OutputBytes: executor.Unlimited}, to[pb.Limits, executor.Limits], from[executor.Limits, pb.Limits])
	if (&inputs{}).source(nil) != nil {
		t.Error("a Source that is nil crossed as one that is not")
	}
}

func TestAnEventOfAKindThatTheWireDoesNotKnowIsPassedOn(t *testing.T) {
	t.Parallel()
	// A newer peer fills a field of the oneof that this version does not have.
	raw, err := proto.Marshal(&pb.Event{Seq: 3, Kind: "hologram"})
	if err != nil {
		t.Fatal(err)
	}
	raw = append(raw, 0xfa, 0x01, 0x02, 'h', 'i') // field 31, length-delimited
	var m pb.Event
	if err := proto.Unmarshal(raw, &m); err != nil {
		t.Fatal(err)
	}
	got := fromEvent(&m)
	want := executor.Event{Seq: 3, Body: executor.Unknown{Name: "hologram"}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if _, err := toEvent(executor.Event{Seq: 1}); executor.CodeOf(err) != executor.Internal {
		t.Errorf("an event without a body: %v", err)
	}
}

// FuzzConvert: whatever bytes a peer sends, converting does not panic, and what came in goes out and in again as it is.
func FuzzConvert(f *testing.F) {
	for seed := range uint64(4) {
		r := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // a test
		spec := executor.Spec{Code: fmt.Sprint(r.Int()), Env: map[string]string{"a": fmt.Sprint(r.Int())}}
		code := r.IntN(256)
		raw, err := proto.Marshal(to[pb.Execution](executor.Execution{Spec: spec, Result: &executor.Result{ExitCode: &code}}))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(raw)
	}
	raw, err := proto.Marshal(mustEvent(executor.Event{Seq: 1, Body: executor.Output{Stream: executor.Stdout, Data: []byte("x")}}))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(raw)
	// The smallest and the largest of what sessions added.
	for _, m := range []proto.Message{
		to[pb.Session](executor.Session{ID: "ctx-1", Generation: 2, Limits: executor.Limits{PIDs: 1}, ExpiresAt: time.Unix(1, 2), Waiting: 3}),
		to[pb.File](executor.File{Path: "a/\xff", Mode: 0o777, ModTime: time.Unix(-1, 0)}),
		to[pb.Variable](executor.Variable{Name: "x", Type: "int", Preview: "1"}),
		to[pb.OpenedSession](executor.OpenedSession{Handle: []byte{0}, Requirements: []string{"attrs==1"}}),
		mustEvent(executor.Event{Seq: 2, Body: executor.Display{Data: map[string][]byte{"text/plain": nil}, Value: true, Truncated: true}}),
		to[pb.Result](executor.Result{Status: executor.StatusKilled, SessionState: executor.SessionStateRestarted, DisplaysDropped: 1, FilesChanged: []executor.Artifact{{Path: "a/\xff"}}, FilesOmitted: 1}),
	} {
		if raw, err = proto.Marshal(m); err != nil {
			f.Fatal(err)
		}
		f.Add(raw)
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		stable(t, raw, &pb.Execution{}, from[executor.Execution, pb.Execution], to[pb.Execution, executor.Execution])
		stable(t, raw, &pb.Event{}, fromEvent, mustEvent)
		stable(t, raw, &pb.Session{}, from[executor.Session, pb.Session], to[pb.Session, executor.Session])
		stable(t, raw, &pb.File{}, from[executor.File, pb.File], to[pb.File, executor.File])
		stable(t, raw, &pb.Variable{}, from[executor.Variable, pb.Variable], to[pb.Variable, executor.Variable])
		stable(t, raw, &pb.OpenedSession{}, from[executor.OpenedSession, pb.OpenedSession], to[pb.OpenedSession, executor.OpenedSession])
		stable(t, raw, &pb.Job{}, from[executor.Job, pb.Job], to[pb.Job, executor.Job])
		stable(t, raw, &pb.ArtifactBegin{}, from[tar.Header, pb.ArtifactBegin], to[pb.ArtifactBegin, tar.Header])
		stable(t, raw, &pb.Error{}, fromError, toError)
		stable(t, raw, &pb.Filter{}, from[executor.Filter, pb.Filter], to[pb.Filter, executor.Filter])
		stable(t, raw, &pb.Info{}, from[executor.Info, pb.Info], to[pb.Info, executor.Info])
		stable(t, raw, &pb.Principal{}, from[executor.Principal, pb.Principal], to[pb.Principal, executor.Principal])
	})
}

func stable[T any, M proto.Message](t *testing.T, raw []byte, m M, from func(M) T, to func(T) M) {
	t.Helper()
	if proto.Unmarshal(raw, m) != nil {
		return
	}
	once := to(from(m))
	raw, err := proto.Marshal(once)
	if err != nil {
		t.Fatalf("marshal: %v", err)
	}
	again, _ := m.ProtoReflect().New().Interface().(M)
	if err := proto.Unmarshal(raw, again); err != nil {
		t.Fatalf("unmarshal: %v", err)
	}
	if twice := to(from(again)); !proto.Equal(once, twice) {
		t.Errorf("%T is not stable:\n once  %v\n twice %v", m, once, twice)
	}
}
