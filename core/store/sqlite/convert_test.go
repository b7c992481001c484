package sqlitestore

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	bolt "go.etcd.io/bbolt"

	"github.com/python-executor/python-executor/core/executor"
)

// unzipped returns what a former version wrote (former.db), and what it read from that (former.json).
func unzipped(t *testing.T, name string) []byte {
	t.Helper()
	f, err := os.Open(filepath.Join("testdata", name+".gz"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// former returns the path of a file of a former version.
func former(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "store.db")
	if err := os.WriteFile(path, unzipped(t, "former.db"), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestAFormerStoreIsConvertedOnce(t *testing.T) {
	t.Parallel()
	path := former(t)
	// A conversion that was cut short left these.
	if err := os.MkdirAll(outputDir(path+".converting"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path+".converting", []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := mustOpen(t, path)
	wantFormer(t, s)
	create(t, s, "exe_4")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = mustOpen(t, path)
	wantFormer(t, s)
	if _, err := s.Get(t.Context(), "exe_4"); err != nil {
		t.Errorf("what was added is gone: %v", err)
	}
	if kept, err := os.ReadFile(path + ".former"); err != nil || !isFormer(path+".former") || len(kept) == 0 {
		t.Errorf("the former file is not kept: %v", err)
	}
	if left, _ := filepath.Glob(path + ".converting*"); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// An operator who went back to the former version, after a kill of this one, leaves this one's log beside the file of the former. SQLite
// would add that log to the next database. The former file of the first conversion stays, too.
func TestAFormerStoreIsConvertedAgainAfterAReturnToTheFormerVersion(t *testing.T) {
	t.Parallel()
	path := former(t)
	first := mustOpen(t, path)
	for _, id := range []string{"exe_8", "exe_9"} {
		create(t, first, id)
		emit(t, first, id, text(0, large), done)
	}
	log := crashed(t, first)["store.db-wal"]
	if err := first.Close(); err != nil || len(log) == 0 {
		t.Fatalf("a log of %d bytes, %v", len(log), err)
	}
	if err := os.WriteFile(path+"-wal", log, 0o600); err != nil {
		t.Fatal(err)
	}
	kept := []byte("the only copy of something")
	for _, name := range []string{".former", ".former.2"} {
		if err := os.WriteFile(path+name, kept, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(path, unzipped(t, "former.db"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := mustOpen(t, path)
	wantFormer(t, s)
	if _, err := s.Get(t.Context(), "exe_9"); executor.CodeOf(err) != executor.NotFound {
		t.Errorf("an execution of the abandoned database: %v", err)
	}
	for _, name := range []string{".former", ".former.2"} {
		if raw, err := os.ReadFile(path + name); err != nil || !bytes.Equal(raw, kept) {
			t.Errorf("%s is %q, %v", name, raw, err)
		}
	}
	if !isFormer(path + ".former.3") {
		t.Error("the former file is not kept")
	}
}

// wantFormer checks that s has what is in testdata.
func wantFormer(t *testing.T, s *Store) {
	t.Helper()
	var want struct {
		Records map[string]executor.Record
		Events  map[string][]executor.Event
		Session executor.SessionRecord
	}
	if err := json.Unmarshal(unzipped(t, "former.json"), &want); err != nil {
		t.Fatal(err)
	}
	for id, r := range want.Records {
		if got, err := s.Get(t.Context(), id); err != nil || !reflect.DeepEqual(got, r) {
			t.Errorf("%s is %+v, error %v\nwant %+v", id, got, err, r)
		}
		var events []executor.Event
		for event, err := range s.Events(t.Context(), id, 0) {
			if err != nil {
				t.Fatal(err)
			}
			if events = append(events, event); event.Seq == r.LastSeq {
				break
			}
		}
		if !reflect.DeepEqual(events, want.Events[id]) {
			t.Errorf("%s has other events", id)
		}
	}
	if r, err := s.Get(t.Context(), "exe_2"); err != nil || r.SpecBytes < 20_000 || r.Spec.Code != "" {
		t.Errorf("its spec has %d bytes, %d of code in brief, error %v", r.SpecBytes, len(r.Spec.Code), err)
	}
	if spec, err := s.Spec(t.Context(), "exe_2"); err != nil || len(spec.Code) != 20_000 {
		t.Errorf("the large spec has %d bytes of code, error %v", len(spec.Code), err)
	}
	if r, err := s.ByKey(t.Context(), "ann", "key"); err != nil || r.ID != "exe_1" {
		t.Errorf("the key is of %q, error %v", r.ID, err)
	}
	if _, err := s.Get(t.Context(), "exe_3"); executor.CodeOf(err) != executor.Purged {
		t.Errorf("what was deleted: %v", err)
	}
	if r, err := s.GetSessionRecord(t.Context(), "ctx_1"); err != nil || !reflect.DeepEqual(r, want.Session) {
		t.Errorf("the session is %+v, error %v", r, err)
	}
	if info, err := os.Stat(outputPath(s.path, 1)); err != nil || info.Size() != 10_000 {
		t.Errorf("the large output: %v", err)
	}
}

func TestAFormerExecutionWithoutAnEventIsQueued(t *testing.T) {
	t.Parallel()
	path := former(t)
	err := editFormer(path, func(tx *bolt.Tx) error {
		return tx.Bucket([]byte("heads")).Put([]byte("exe_9"), []byte(`{"id":"exe_9","status":"queued"}`))
	})
	if err != nil {
		t.Fatal(err)
	}
	s := mustOpen(t, path)
	if r, err := s.Get(t.Context(), "exe_9"); err != nil || r.LastSeq != 1 {
		t.Errorf("it has %d events, error %v", r.LastSeq, err)
	}
}

func TestAFormerStoreThatCannotBeConvertedStaysAsItIs(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		prepare func(path string) error
		want    string
	}{
		"it was not stopped cleanly": {
			func(path string) error { return os.WriteFile(path+".wal.0000000000000001", nil, 0o600) }, "stop it with SIGTERM",
		},
		"its format is unknown": {
			func(path string) error {
				return editFormer(path, func(tx *bolt.Tx) error { return tx.Bucket([]byte("meta")).Put([]byte("format"), []byte("9")) })
			}, `unknown format "9"`,
		},
		"an event is damaged": {
			func(path string) error {
				return editFormer(path, func(tx *bolt.Tx) error {
					return tx.Bucket([]byte("events")).Put([]byte("exe_1\x00\x00\x00\x00\x00\x00\x00\x00\x01"), []byte{9, 1})
				})
			}, "exe_1: ",
		},
		"a record is damaged": {
			func(path string) error {
				return editFormer(path, func(tx *bolt.Tx) error { return tx.Bucket([]byte("heads")).Put([]byte("exe_1"), []byte("{")) })
			}, "To start without its executions",
		},
		"its pages are damaged": {
			func(path string) error {
				return overwrite(path, func(raw []byte) []byte {
					for i := 4 * os.Getpagesize(); i < len(raw); i++ {
						raw[i] = 0xff
					}
					return raw
				})
			}, "To start without its executions",
		},
		"it is cut off": {
			func(path string) error {
				return overwrite(path, func(raw []byte) []byte { return raw[:3*os.Getpagesize()] })
			},
			"To start without its executions",
		},
		"its heads are damaged": {
			func(path string) error {
				return overwrite(path, func(raw []byte) []byte {
					copy(raw[30:], make([]byte, 40))
					copy(raw[os.Getpagesize()+30:], make([]byte, 40))
					return raw
				})
			}, "To start without its executions",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := former(t)
			if err := test.prepare(path); err != nil {
				t.Fatal(err)
			}
			before, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			for range 2 {
				if _, err := Open(path, Options{}); executor.CodeOf(err) != executor.Internal || !strings.Contains(err.Error(), test.want) {
					t.Errorf("opening gave %v", err)
				}
			}
			if after, err := os.ReadFile(path); err != nil || !bytes.Equal(after, before) {
				t.Errorf("the file was changed, error %v", err)
			}
		})
	}
}

func overwrite(path string, edit func([]byte) []byte) error {
	raw, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	return os.WriteFile(path, edit(raw), 0o600)
}

func TestAFormerStoreInUseIsNotConverted(t *testing.T) {
	t.Parallel()
	path := former(t)
	err := editFormer(path, func(*bolt.Tx) error {
		_, err := Open(path, Options{})
		return err
	})
	if executor.CodeOf(err) != executor.Unavailable || !strings.Contains(err.Error(), path) {
		t.Errorf("opening gave %v", err)
	}
}

func editFormer(path string, edit func(tx *bolt.Tx) error) error {
	db, err := bolt.Open(path, 0o600, nil)
	if err != nil {
		return err
	}
	defer db.Close()
	return db.Update(edit)
}
