package backendtest

import (
	"fmt"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/awaittest"
)

func promiseRules() []rule {
	return []rule{
		{"BE-70", "Info is true and complete, and warns of every default that is not enforced", infoIsHonest},
		{"BE-71", "every field of a Spec takes effect or is refused by name", specWalk},
		{"BE-72", "every field of Limits takes effect or is refused by name", limitsWalk},
		{"BE-73", "a sample interval gives a memory curve, or is refused", memorySamples},
		{"BE-74", "a refusal names every refused field, and starts nothing", refusalNamesAll},
		{"BE-75", "times and sizes of a Result are plausible; resident memory is what the kernel tells the program", plausible},
	}
}

var minorVersion = regexp.MustCompile(`^\d+\.\d+$`)

func infoIsHonest(c *Case) {
	first := c.suite.info
	caps := first.Capabilities
	if first.Name == "" || first.Type == "" || first.Version == "" {
		c.Errorf("name %q, type %q, version %q", first.Name, first.Type, first.Version)
	}
	if !first.Healthy {
		c.Errorf("not healthy: %s", first.Message)
	}
	levels := []executor.Isolation{executor.IsolationNone, executor.IsolationNamespaces, executor.IsolationContainer, executor.IsolationVM}
	if !slices.Contains(levels, caps.Isolation) {
		c.Errorf("isolation is %q", caps.Isolation)
	}
	if len(caps.Languages) == 0 {
		c.Errorf("no language")
	}
	for _, version := range caps.PythonVersions {
		if !minorVersion.MatchString(version) {
			c.Errorf("python version %q is not a minor version", version)
		}
	}
	if first.Capacity < 0 {
		c.Errorf("capacity is %d", first.Capacity)
	}
	for _, w := range []struct {
		enforced bool
		words    []string
	}{
		{caps.NetworkOff, []string{"network"}},
		{caps.Memory, []string{"memory"}},
		{caps.Disk, []string{"disk"}},
		{caps.CPU, []string{"cpu"}},
		{caps.PIDs, []string{"pids", "process"}},
		{caps.Isolation != executor.IsolationNone, []string{"host", "isolation"}},
	} {
		warned := slices.ContainsFunc(first.Warnings, func(text string) bool {
			return slices.ContainsFunc(w.words, func(word string) bool { return strings.Contains(strings.ToLower(text), word) })
		})
		if !w.enforced && !warned {
			c.Errorf("no warning about %s, which is not enforced: %q", w.words[0], first.Warnings)
		}
	}
	second, err := c.suite.backend.Info(c.ctx)
	if err != nil {
		c.Fatalf("Info: %v", err)
	}
	if !reflect.DeepEqual(second.Capabilities, caps) {
		c.Errorf("capabilities changed from %+v to %+v", caps, second.Capabilities)
	}
}

// probe checks one field. rule names the case that covers the field, and check is the check if no case does. Without either
// the field is the Engine's: a Backend may ignore it, but must still run the Spec.
type probe struct {
	rule  string
	check func(c *Case)
	// harmless sets a field of the Engine's to some value.
	harmless func(j *executor.Job)
}

func specProbes() map[string]probe {
	return map[string]probe{
		"Language":       {check: languages},
		"Entrypoint":     {rule: "BE-02"},
		"Code":           {rule: "BE-03"},
		"Command":        {rule: "BE-07"},
		"Args":           {rule: "BE-14"},
		"Env":            {rule: "BE-15"},
		"PythonVersion":  {rule: "BE-52"},
		"Interpreter":    {check: interpreters},
		"Image":          {check: images},
		"Requirements":   {rule: "BE-50"},
		"PreCommands":    {check: preCommands},
		"Detect":         {harmless: func(j *executor.Job) { yes := true; j.Spec.Detect = &yes }},
		"Outputs":        {rule: "BE-16"},
		"OutputsChanged": {check: outputsChanged},
		"FilesChanged":   {rule: "SE-23"},
		"Limits":         {rule: "BE-72"},
		"Network":        {rule: "BE-36"},
		"Session":        {check: sessions},
		"Backend":        {harmless: func(j *executor.Job) { j.Spec.Backend = "any" }},
		"Durable":        {harmless: func(j *executor.Job) { j.Spec.Durable = true }},
		"IdempotencyKey": {harmless: func(j *executor.Job) { j.Spec.IdempotencyKey = "key" }},
		"SampleInterval": {rule: "BE-73"},

		"InterruptOnCancel": {rule: "BE-49"},
		"Script":            {check: scripts},
		"HostDirectory":     {check: hostDirectory},
	}
}

func limitsProbes() map[string]probe {
	return map[string]probe{
		"Timeout":     {rule: "BE-30"},
		"CPUTime":     {rule: "BE-65"},
		"MemoryBytes": {rule: "BE-33"},
		"DiskBytes":   {rule: "BE-34"},
		"CPUShares":   {check: cpuShares},
		"PIDs":        {rule: "BE-35"},
		"OutputBytes": {rule: "BE-25"},
		"KillGrace":   {rule: "BE-44"},
	}
}

func specWalk(c *Case) { c.walk(reflect.TypeFor[executor.Spec](), specProbes()) }

func limitsWalk(c *Case) { c.walk(reflect.TypeFor[executor.Limits](), limitsProbes()) }

// walk probes every field of a struct. A field without a probe is an error of the suite. The fields of the Engine are set together.
func (c *Case) walk(of reflect.Type, probes map[string]probe) {
	var harmless []string
	var set []func(*executor.Job)
	for i := range of.NumField() {
		name := of.Field(i).Name
		p, ok := probes[name]
		switch {
		case !ok:
			c.Errorf("no probe for %s.%s", of.Name(), name)
		case p.check != nil:
			p.check(c)
		case p.harmless != nil:
			harmless, set = append(harmless, name), append(set, p.harmless)
		}
	}
	if len(harmless) == 0 {
		return
	}
	job := c.job(helloProgram)
	for _, f := range set {
		f(&job)
	}
	if r := c.start(job).wait(); r.err != nil || r.result.Status != executor.StatusSucceeded {
		c.Errorf("%s with %s: %s, error %v", of.Name(), strings.Join(harmless, ", "), r.verdict(), r.err)
	}
}

func languages(c *Case) {
	for _, language := range []executor.Language{executor.LanguagePython, executor.LanguageJavaScript, executor.LanguageShell, "cobol"} {
		job := c.job(helloProgram)
		job.Spec.Language = language
		switch {
		case !slices.Contains(c.caps().Languages, language):
			c.refused(job, "language")
		case language == executor.LanguagePython:
			c.run(job).succeeded()
		}
	}
}

func interpreters(c *Case) {
	job := c.job(helloProgram)
	job.Spec.Interpreter = executor.InterpreterEnvironment
	c.run(job).succeeded()
	job = c.job(helloProgram)
	job.Spec.Interpreter = executor.InterpreterSystem
	if !c.caps().SystemInterpreter {
		c.refused(job, "interpreter")
		return
	}
	c.run(job).succeeded()
	job = c.job(helloProgram)
	job.Spec.Interpreter = executor.InterpreterSystem
	job.Spec.Requirements = "requests==2.32.3"
	c.refused(job, "requirements_txt")
}

func images(c *Case) {
	job := c.job(helloProgram)
	job.Spec.Image = "no-such-image.invalid/pyexec-law:1"
	if !c.caps().Images {
		c.refused(job, "docker_image")
	} else {
		c.run(job).failure(executor.PhasePrepare, executor.Invalid, "no-such-image.invalid")
	}
	for _, version := range c.caps().PythonVersions {
		job := c.job(helloProgram)
		job.Spec.Image = "python:" + version + "-slim"
		if r := c.run(job).succeeded(); !strings.HasPrefix(r.result.PythonVersion, version+".") {
			c.Errorf("image %s ran Python %q", job.Spec.Image, r.result.PythonVersion)
		}
	}
}

func preCommands(c *Case) {
	job := c.job(helloProgram)
	job.Spec.PreCommands = []string{"true", "false"}
	if !c.caps().PreCommands {
		c.refused(job, "pre_commands")
		return
	}
	c.run(job).failure(executor.PhasePrepare, executor.Invalid, "false")
	job = c.job(helloProgram)
	job.Spec.PreCommands = []string{"true"}
	c.run(job).succeeded()
}

func outputsChanged(c *Case) {
	if !c.caps().Artifacts {
		job := c.job(helloProgram)
		job.Spec.OutputsChanged = true
		c.refused(job, "outputs_changed")
	}
}

func sessions(c *Case) {
	if !c.caps().Sessions {
		job := c.job(helloProgram)
		job.Spec.Session = "ctx-00000000-0000-4000-8000-000000000000"
		c.refused(job, "session")
	}
}

func scripts(c *Case) {
	if !c.caps().Scripts {
		job := c.bare()
		job.Spec.Script = "/usr/local/bin/script"
		c.refused(job, "script")
	}
}

func hostDirectory(c *Case) {
	job := c.job(Program{Python: "import os\nprint(os.path.realpath(os.getcwd()))\n", Fake: "cwd"})
	dir, _ := hostTree(c)
	job.Spec.HostDirectory = dir
	if !c.caps().HostDirectories {
		c.refused(job, "host_directory")
		return
	}
	if r := trusted(c, job).succeeded(); strings.TrimSpace(r.stdout()) != dir {
		c.Errorf("it ran in %q, want %q", r.stdout(), dir)
	}
	if _, err := os.Stat(dir); err != nil {
		c.Errorf("the host's folder is gone: %v", err)
	}
}

func cpuShares(c *Case) {
	job := c.job(helloProgram)
	job.Limits.CPUShares, job.Spec.Limits.CPUShares = 512, 512
	if !c.caps().CPU {
		c.refused(job, "config.cpu_shares")
		return
	}
	// CPU shares have an effect under load only. The case checks that they are accepted and harmless.
	c.run(job).succeeded()
}

func memorySamples(c *Case) {
	interval := 10 * time.Millisecond
	holding := func(d time.Duration) executor.Job {
		job := c.job(Program{
			Python: fmt.Sprintf("import time\nb = bytearray(b'x' * (16 << 20))\ntime.sleep(%f)\n", d.Seconds()),
			Fake:   fmt.Sprintf("alloc 16MB\nsleep %s", d),
		})
		job.Spec.SampleInterval = interval
		return job
	}
	if !c.caps().MemorySamples {
		c.refused(holding(interval), "sample_interval_seconds")
		return
	}
	samples := awaittest.Ladder(c, 300*time.Millisecond, func(d time.Duration) ([]executor.MemorySample, bool) {
		samples := c.run(holding(d)).succeeded().result.MemorySamples
		held := slices.ContainsFunc(samples, func(s executor.MemorySample) bool { return s.Bytes >= 16<<20 })
		return samples, held && len(samples) >= 2 // a busy machine may take no sample in a short time
	})
	last := time.Duration(-1)
	for _, s := range samples {
		if s.Offset < 0 || s.Offset < last || s.Bytes < 0 {
			c.Errorf("sample %+v after %s", s, last)
		}
		last = s.Offset
	}
	if r := c.program(helloProgram).succeeded(); len(r.result.MemorySamples) > 0 {
		c.Errorf("%d samples that nobody asked for", len(r.result.MemorySamples))
	}
}

func refusalNamesAll(c *Case) {
	job := c.job(helloProgram)
	job.Spec.PythonVersion = "2.1"
	want := []string{"python_version"}
	job.Spec.Language = "cobol"
	want = append(want, "language")
	if !c.caps().PreCommands {
		job.Spec.PreCommands = []string{"true"}
		want = append(want, "pre_commands")
	}
	if !c.caps().Sessions {
		job.Spec.Session = "ctx-00000000-0000-4000-8000-000000000000"
		want = append(want, "session")
	}
	c.workspace(&job, archive(entry{name: "a.txt", text: "a"}))
	r := c.start(job).wait()
	for _, field := range want {
		if why := refusal(r, field); why != "" {
			c.Errorf("%s", why)
		}
	}
	if len(r.progress) > 0 {
		c.Errorf("it was refused after work had begun: %+v", r.progress)
	}
}

func plausible(c *Case) {
	r := c.program(Program{
		// On a busy machine the program may get little of the 400 ms.
		Python: "import time\nend = time.monotonic() + 0.4\nwhile time.monotonic() < end or time.process_time() < 0.1:\n    pass\n",
		Fake:   "busy 400ms",
	}).succeeded()
	res := r.result
	if res.Wall < 400*time.Millisecond || res.Wall > late {
		c.Errorf("wall time %s of a program that takes 400 ms", res.Wall)
	}
	if res.CPU >= 0 && (res.CPU < 50*time.Millisecond || res.CPU > 20*res.Wall) {
		c.Errorf("CPU time %s of a program that is busy for 400 ms", res.CPU)
	}
	if res.PeakMemoryBytes != 0 && (res.PeakMemoryBytes < 1<<20 || res.PeakMemoryBytes > 256<<20) {
		c.Errorf("peak memory %d bytes of a program that does nothing", res.PeakMemoryBytes)
	}
	if res.Phases.Run < 400*time.Millisecond {
		c.Errorf("phase run took %s", res.Phases.Run)
	}
	c.plausibleResident()
}

// plausibleResident compares the resident memory of a Result with what the kernel tells its program.
func (c *Case) plausibleResident() {
	r := c.program(Program{
		Python: "import resource\nb = bytearray(b'x' * (40 << 20))\nprint(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)\n",
		Fake:   "alloc 40MB\nprint 49152",
	}).succeeded()
	var kib int64
	if _, err := fmt.Sscan(r.stdout(), &kib); err != nil {
		c.Errorf("the program printed %q", r.stdout())
	}
	const slack = 16 << 20 // the end of an interpreter may need memory, too
	if peak, want := r.result.PeakResidentBytes, kib<<10; peak != 0 && (peak < want-slack || peak > want+slack) {
		c.Errorf("resident memory of %d bytes, the program was told of %d", peak, want)
	}
}
