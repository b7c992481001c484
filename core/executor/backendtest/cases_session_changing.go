package backendtest

import (
	"archive/tar"
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/awaittest"
)

// sessionChangingOutputs makes a background process of a Session change a file between the file's header and its data.
func sessionChangingOutputs(c *Case) {
	c.need(c.caps().Artifacts, "artifacts")
	changingBytes := 32 << 20 // more than a Backend buffers for a Sink that does not read
	if c.suite.options.Dialect == DialectFake {
		changingBytes = 2 << 20 // the fake buffers nothing, and has its files in memory
	}
	for _, at := range []struct {
		name   string
		change string // a Python statement
		size   int    // afterwards
	}{
		{"grows", "open('out/grows', 'ab').write(b'more')", changingBytes + 4},
		{"shrinks", "os.truncate('out/shrinks', 4)", 4},
	} {
		o := c.open()
		job := o.job(Program{
			Python: fmt.Sprintf(`
import os, threading, time
os.mkdir("out")
for name in ("first", "grows", "shrinks", "stays"):
    with open("out/" + name, "wb") as f:
        f.write(b"head")
        f.truncate(4 if name == "first" else %d)
def change():
    while not os.path.exists("change"):
        time.sleep(0.01)
    %s
    open("changed", "w").close()
threading.Thread(target=change, daemon=True).start()
`, changingBytes, at.change),
			Fake: fmt.Sprintf("write-file out/first head\nfill-file out/grows %[1]d\nfill-file out/shrinks %[1]d\nfill-file out/stays %[1]d\nresize out/%[2]s %[3]d\nwrite-file changed yes",
				changingBytes, at.name, at.size),
		})
		job.Spec.Outputs = []string{"out/**"}
		changed := make(chan struct{})
		r := o.start(job, func(r *running) {
			r.onArtifact = func(h *tar.Header) error {
				if h.Name == "out/"+at.name {
					select {
					case <-changed:
					case <-r.ctx.Done():
					}
				}
				return nil
			}
		})
		r.until("the collection of out/"+at.name, func(j *journal) bool { return j.collecting == "out/"+at.name })
		if _, err := o.write("change", 0, strings.NewReader("")); err != nil {
			c.Errorf("WriteFile: %v", err)
		}
		o.awaitFile("changed")
		close(changed)
		r.wait()
		r.noError()
		r.status(executor.StatusFailed).exit(0)
		if f := r.result.Failure; f == nil || f.Phase != executor.PhaseCollect || f.Code == executor.Internal || !strings.Contains(f.Message, "out/"+at.name) || strings.Contains(f.Message, "out/stays") {
			c.Errorf("out/%s changed while it was collected, and the failure is %+v", at.name, f)
		}
		for _, name := range []string{"out/first", "out/grows", "out/shrinks", "out/stays"} {
			size := changingBytes
			if name == "out/first" {
				size = 4
			}
			data, ok := r.file(name)
			if !ok || len(data) != size || bytes.Count(data[4:], []byte{0}) != size-4 {
				c.Errorf("%s: collected %v with %d bytes, want %d, all but the first four of them zeros", name, ok, len(data), size)
			}
			if n := slices.IndexFunc(r.result.Artifacts, func(a executor.Artifact) bool { return a.Path == name }); n < 0 || r.result.Artifacts[n].SizeBytes != int64(size) {
				c.Errorf("%s is not listed with %d bytes: %+v", name, size, r.result.Artifacts)
			}
		}
	}
}

// awaitFile waits until o has a file of that name.
func (o *opened) awaitFile(name string) {
	awaittest.Until(o.c, "the file "+name, func() bool {
		return slices.ContainsFunc(o.list("", false), func(f executor.File) bool { return f.Path == name })
	})
}
