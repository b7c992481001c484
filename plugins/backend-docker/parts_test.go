package dockerbackend

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/python-executor/python-executor/core/executor"
)

// nothing is a Progress callback that does nothing.
func nothing(executor.Progress) {}

func TestAnUnknownKeyOrAWrongValueIsNamedByItsPath(t *testing.T) {
	t.Parallel()
	for section, want := range map[string][]string{
		`{"hosts": "x"}`:                          {"backends.d.hosts"},
		`{"pool": {"min": 1}}`:                    {"backends.d.pool.min"},
		`{"prepare": {"index": ""}, "zzz": 1}`:    {"backends.d.prepare.index", "backends.d.zzz"},
		`{"pool": {"max": "many"}}`:               {"backends.d.pool.max"},
		`{"pool": 3}`:                             {"backends.d.pool"},
		`[]`:                                      {"backends.d"},
		`{"images": "python"}`:                    {"backends.d.images"},
		`{"cpus": true}`:                          {"backends.d.cpus"},
		`{"host": "somewhere"}`:                   {"backends.d.host"},
		`{"default_image": ""}`:                   {"backends.d.default_image"},
		`{"default_image": "Python:3.12"}`:        {"backends.d.default_image"},
		`{"default_image": "python:*"}`:           {"backends.d.default_image"},
		`{"default_image": "python@sha256:1"}`:    {"backends.d.default_image"},
		`{"network": "host"}`:                     {"backends.d.network"},
		`{"network": "container:x"}`:              {"backends.d.network"},
		`{"silence_seconds": 1}`:                  {"backends.d.silence_seconds"},
		`{"pool": {"min_idle": 5, "max": 4}}`:     {"backends.d.pool.max"},
		`{"pool": {"sessions": 5, "max": 4}}`:     {"backends.d.pool.max"},
		`{"pool": {"min_idle": -1}}`:              {"backends.d.pool.min_idle"},
		`{"cpus": 4097}`:                          {"backends.d.cpus"},
		`{"prepare": {"extra_index_urls": [""]}}`: {"backends.d.prepare.extra_index_urls[0]"},
		`{"prepare": {"index_url": "ftp://x", "extra_index_urls": ["y"], "proxy": "z", "find_links": "rel", "ca_cert": "rel",
			"timeout_seconds": 0, "memory_mb": 1, "disk_mb": 1, "cache_bytes": 0}}`: {
			"backends.d.prepare.ca_cert", "backends.d.prepare.cache_bytes", "backends.d.prepare.disk_mb", "backends.d.prepare.extra_index_urls[0]",
			"backends.d.prepare.find_links", "backends.d.prepare.index_url", "backends.d.prepare.memory_mb", "backends.d.prepare.proxy", "backends.d.prepare.timeout_seconds",
		},
	} {
		_, err := parseConfig("d", json.RawMessage(section))
		e, ok := errors.AsType[*executor.Error](err)
		if !ok || e.Code != executor.Invalid {
			t.Errorf("%s: %v", section, err)
			continue
		}
		var got []string
		for _, f := range e.Fields {
			got = append(got, f.Field)
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s: %q, want %q", section, got, want)
		}
	}
}

func TestASectionChangesTheDefaultsItNames(t *testing.T) {
	t.Parallel()
	for _, raw := range []string{"", "null", "{}"} {
		c, err := parseConfig("d", json.RawMessage(raw))
		if err != nil || fmt.Sprint(c) != fmt.Sprint(Default()) {
			t.Errorf("%q: %+v, %v", raw, c, err)
		}
	}
	c, err := parseConfig("d", json.RawMessage(`{"pool": {"min_idle": 0}, "host": "tcp://10.0.0.1:2376", "runtime": "runsc"}`))
	if err != nil || c.Pool.MinIdle != 0 || c.Pool.Max != Default().Pool.Max || c.Host != "tcp://10.0.0.1:2376" || c.Runtime != "runsc" {
		t.Errorf("%+v, %v", c, err)
	}
}

func TestTheDockerCommandsContextIsUsed(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	write := func(content string, path ...string) {
		t.Helper()
		file := filepath.Join(append([]string{folder}, path...)...)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if c, err := currentContext(folder, ""); err != nil || c != (endpoint{}) {
		t.Errorf("without settings: %+v, %v", c, err)
	}
	sum := sha256.Sum256([]byte("far"))
	id := hex.EncodeToString(sum[:])
	write(`{"currentContext": "far"}`, "config.json")
	write(`{"Endpoints": {"docker": {"Host": "tcp://far:2376"}}}`, "contexts", "meta", id, "meta.json")
	write("x", "contexts", "tls", id, "docker", "ca.pem")
	for _, name := range []string{"", "far"} {
		c, err := currentContext(folder, name)
		if err != nil || c.host != "tcp://far:2376" || string(c.files.CA) != "x" || c.files.Cert != nil {
			t.Errorf("%q: %+v, %v", name, c, err)
		}
	}
	if c, err := currentContext(folder, "default"); err != nil || c != (endpoint{}) {
		t.Errorf("default: %+v, %v", c, err)
	}
	write(`{"Endpoints": {"docker": {"Host": "tcp://far:2376", "SkipTLSVerify": true}}}`, "contexts", "meta", id, "meta.json")
	if c, err := currentContext(folder, "far"); err != nil || !c.secured || !c.unverified {
		t.Errorf("a context that skips the check of the certificate: %+v, %v", c, err)
	}
	if _, err := currentContext(folder, "gone"); executor.CodeOf(err) != executor.Invalid || !strings.Contains(err.Error(), "gone") {
		t.Errorf("a context that does not exist: %v", err)
	}
	write(`{"Endpoints": {}}`, "contexts", "meta", id, "meta.json")
	if _, err := currentContext(folder, "far"); executor.CodeOf(err) != executor.Invalid {
		t.Errorf("a context without a docker endpoint: %v", err)
	}
	write(`{`, "contexts", "meta", id, "meta.json")
	if _, err := currentContext(folder, "far"); executor.CodeOf(err) != executor.Invalid {
		t.Errorf("a broken context: %v", err)
	}
}

// multiplexed returns a piece of a daemon's stream.
func multiplexed(stream byte, data string) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{stream, 0, 0, 0}, uint32(len(data))), data...) //nolint:gosec // short
}

func TestTheStreamsOfAContainerAreTakenApart(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&log, nil))
	stream := bytes.Join([][]byte{
		multiplexed(1, "ab"), multiplexed(2, "complaint"), multiplexed(1, ""), multiplexed(2, strings.Repeat("x", 3*maxLogged)), multiplexed(1, "cde"),
	}, nil)
	for name, in := range map[string]io.Reader{"at once": bytes.NewReader(stream), "byte by byte": iotest.OneByteReader(bytes.NewReader(stream))} {
		log.Reset()
		near, far := net.Pipe()
		s := newStdio(near, bufio.NewReader(in), nil, logger)
		got, err := io.ReadAll(s)
		if err != nil || string(got) != "abcde" {
			t.Errorf("%s: %q, %v", name, got, err)
		}
		if !strings.Contains(log.String(), "complaint") || log.Len() > 2*maxLogged {
			t.Errorf("%s: %d bytes are logged", name, log.Len())
		}
		if err := errors.Join(s.Close(), far.Close()); err != nil {
			t.Error(err)
		}
	}
	for name, broken := range map[string][]byte{
		"another stream":  multiplexed(7, "x"),
		"cut in a piece":  multiplexed(1, "abc")[:9],
		"cut in a header": multiplexed(1, "abc")[:5],
		"cut in a log":    multiplexed(2, "abc")[:9],
	} {
		near, far := net.Pipe()
		if _, err := io.ReadAll(newStdio(near, bufio.NewReader(bytes.NewReader(broken)), nil, logger)); err == nil {
			t.Errorf("%s: no error", name)
		}
		if err := errors.Join(near.Close(), far.Close()); err != nil {
			t.Error(err)
		}
	}
}

func TestClaimsAreThereForTheNextLife(t *testing.T) {
	t.Parallel()
	c := &claims{dir: filepath.Join(t.TempDir(), "claims"), boot: "boot"}
	next := &claims{dir: c.dir, boot: "next"}
	until := time.Unix(1<<33, 0)
	for id, container := range map[string]string{"exe_1": "c1", "../exe_2": "c2"} {
		if err := c.add(id, container, until); err != nil {
			t.Fatal(err)
		}
		if got, ok := next.find(id); !ok || got.Container != container || got.Boot != "boot" || !got.Deadline.Equal(until) {
			t.Errorf("%s: %+v, %v", id, got, ok)
		}
	}
	if all := next.all(); len(all) != 2 || all["exe_2"].Container != "c2" {
		t.Errorf("all are %+v", all)
	}
	c.drop("exe_1")
	c.drop("exe_1")
	for _, life := range []*claims{c, next} {
		if _, ok := life.find("exe_1"); ok {
			t.Error("the dropped claim still exists")
		}
	}
	if outside, _ := filepath.Glob(filepath.Join(filepath.Dir(c.dir), "*.json")); len(outside) != 0 {
		t.Errorf("files were written outside the folder: %q", outside)
	}
	for _, broken := range []string{"{}", "{", ""} {
		if err := os.WriteFile(c.path("exe_3"), []byte(broken), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, ok := next.find("exe_3"); ok {
			t.Errorf("%q is taken for a claim: %+v", broken, got)
		}
	}
	if info, err := os.Stat(c.path("exe_2")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("other users may read a claim: %v, %v", info, err)
	}
	none := &claims{boot: "boot"}
	if err := none.add("exe_1", "c", until); err != nil || none.all()["exe_1"].Container != "c" {
		t.Errorf("without a folder: %v, %+v", err, none.all())
	}
}
