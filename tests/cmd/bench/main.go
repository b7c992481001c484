// Command bench measures python-executor next to what a user would otherwise do, interleaved in one run, because machines
// are noisy and only ratios of neighbours mean something. It prints a table, compares the ratios with the last committed run, and keeps
// every number as JSON. With -check it measures the fast rows only, several times, and fails if a row is worse than before.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"time"

	"github.com/python-executor/python-executor/plugins/backend-docker/dockertest"
	"github.com/python-executor/python-executor/tests/internal/ratio"
	"github.com/python-executor/python-executor/tests/internal/serve"
)

func main() {
	if address := os.Getenv(blobVariable); address != "" {
		exit(serveBlob(address))
	}
	opts := options{}
	flag.StringVar(&opts.binary, "binary", "bin/python-executor", "the program under test")
	flag.StringVar(&opts.python, "python", "/usr/bin/python3", "the bare interpreter to compare with")
	flag.StringVar(&opts.uv, "uv", "", "uv's real binary; empty: that comparison is left out, and says so")
	flag.StringVar(&opts.jupyter, "jupyter", "", "a Python with jupyter_kernel_gateway, ipykernel and websocket-client; empty: sessions are left out, and it says so")
	flag.StringVar(&opts.out, "out", "", "file for the raw numbers (JSON)")
	flag.StringVar(&opts.against, "against", "", "another build: measure it and -binary in turns, and nothing else")
	only := flag.String("cases", ".", "regular expression: only what matches the name of a series or of a row")
	flag.IntVar(&opts.rounds, "rounds", 200, "interleaved rounds")
	flag.IntVar(&opts.tarMB, "tar-mb", 1024, "size of the tar in MB, 0 to leave it out")
	flag.DurationVar(&opts.sustained, "sustained", 60*time.Second, "how long the watch for leaks and each side of the sustained load of Docker go on")
	flag.DurationVar(&opts.turn, "turn", 3*time.Second, "length of a turn of a load; each side has four")
	flag.IntVar(&opts.repetitions, "repetitions", 1, "how often all of it is started anew")
	flag.BoolVar(&opts.check, "check", false, "measure the fast rows only, and fail if one is worse than in the last committed run")
	flag.Parse()
	var err error
	if opts.cases, err = regexp.Compile(*only); err == nil {
		err = run(opts)
	}
	exit(err)
}

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

type options struct {
	binary, python, uv, jupyter, out, against string
	rounds, tarMB, repetitions                int
	sustained, turn                           time.Duration
	check                                     bool
	cases                                     *regexp.Regexp
}

// wants reports whether one of the series was asked for, by its own name or by that of a row.
func (o options) wants(series ...string) bool {
	for _, name := range series {
		if !o.check && o.cases.MatchString(name) {
			return true
		}
		for _, row := range rows() {
			if row.Uses(name) && row.Skip == "" && o.cases.MatchString(row.Name) && (row.Fast || !o.check) {
				return true
			}
		}
	}
	return false
}

// rows returns those that are printed, if they were measured.
func (o options) rows() []ratio.Row {
	return slices.DeleteFunc(rows(), func(row ratio.Row) bool {
		return o.check && !row.Fast || row.Skip != "" && !o.cases.MatchString(row.Name)
	})
}

// bench is one repetition.
type bench struct {
	options
	dir, script string
	run         *report
	// server is that of most groups: the uv backend, as this user.
	server *serve.Server
}

// report is what is kept.
type report struct{ ratio.Run }

// group measures series together.
type group struct {
	series  []string
	measure func(*bench) error
}

// groups are measured one after another.
func groups() []group {
	return []group{
		{[]string{barePython, httpSync, userSync, cachedSync, numpySync, venvPython, cliWhole, cliFirst, uvWhole, uvFirst}, single},
		{outputSeries, output},
		{sessionNames, sessions},
		{[]string{rateSync, rateBare}, throughput},
		{[]string{rateModules, rateModulesBare}, modules},
		{[]string{rateBatch, rateCalls, rateBatchFiles, rateCallsFiles, rateBatchMany, rateCallsMany}, batch},
		{neighbourSeries(), neighbours},
		{leakSeries(), leaks},
		{[]string{downloadHost, downloadSandbox}, download},
		{mcpSeries(), mcp},
		{[]string{tarSync, tarX, tarCoreMB}, bigTar},
		{nomadNames, measureNomad},
		// Last: a daemon that makes and removes containers is no quiet neighbour.
		{dockerNames, measureDocker},
	}
}

func run(opts options) (err error) {
	// As root the folder lies where environments do by default. Programs have a /tmp of their own, and no forks of what lies there.
	place := ""
	if os.Geteuid() == 0 {
		place = "/var/cache"
	}
	dir, err := os.MkdirTemp(place, "pyexec-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := os.Chmod(dir, 0o755); err != nil { //nolint:gosec // programs run as other users
		return err
	}
	if opts.binary, err = filepath.Abs(opts.binary); err != nil {
		return err
	}
	// Ours run the interpreter of the peers. That of PATH may start slower, by what is in its site-packages.
	if err := os.Setenv("PATH", filepath.Dir(opts.python)+":"+os.Getenv("PATH")); err != nil {
		return err
	}
	b := &bench{options: opts, dir: dir, script: filepath.Join(dir, "hello.py"), run: &report{ratio.NewRun(time.Now().UTC().Truncate(time.Second))}}
	if err := os.WriteFile(b.script, []byte(hello), 0o644); err != nil { //nolint:gosec // read by another user
		return err
	}
	r := b.run
	r.Machine["cpus"], r.Machine["kernel"] = fmt.Sprint(runtime.NumCPU()), firstLine("uname", "-r")
	noteLoad(r)
	r.Versions["python-executor"], r.Versions["python"], r.Versions["go"] = firstLine(opts.binary, "version"), firstLine(opts.python, "--version"), runtime.Version()
	defer func() { err = errors.Join(err, dockertest.Stop()) }()
	r.Repetitions = max(1, opts.repetitions)
	for range r.Repetitions {
		if err := b.repetition(); err != nil {
			return err
		}
	}
	if opts.against != "" {
		return r.keep(opts.out)
	}
	former, err := ratio.Committed(context.Background(), ".")
	if err != nil {
		return err
	}
	r.print(os.Stdout)
	worse := r.printRows(os.Stdout, opts.rows(), former)
	if err := r.keep(opts.out); err != nil || !opts.check || len(worse) == 0 {
		return err
	}
	return fmt.Errorf("worse than before by more than %.0f %% beyond the noise: %q", 100*ratio.Tolerance, worse)
}

// noteLoad keeps the load of the machine before the run, and warns of one that the run would share the processors with. Such a load slows
// a call, which crosses processes, more than a bare process.
func noteLoad(r *report) {
	var load float64
	raw, _ := os.ReadFile("/proc/loadavg") // without it nothing is known
	if _, err := fmt.Sscan(string(raw), &load); err != nil {
		return
	}
	r.Machine["load before"] = fmt.Sprint(load)
	if load > float64(runtime.NumCPU())/2 {
		fmt.Fprintf(os.Stderr, "the machine is busy (load %v, %d processors): ratios are worse than on a quiet one\n", load, runtime.NumCPU())
	}
}

// repetition starts a server and measures every group that was asked for.
func (b *bench) repetition() error {
	b.server = &serve.Server{Binary: b.binary, Dir: b.dir}
	if err := b.server.Start(); err != nil {
		return err
	}
	defer b.server.Stop()
	if b.against != "" {
		return against(b)
	}
	for _, g := range groups() {
		if !b.wants(g.series...) {
			continue
		}
		fmt.Fprintf(os.Stderr, "%s %s …\n", time.Now().Format(time.TimeOnly), g.series[0])
		if err := g.measure(b); err != nil {
			return err
		}
	}
	_, corePeak := serve.RSS(b.server.PID())
	_, pluginPeak := serve.RSS(b.server.PluginPID())
	b.run.Figures[coreMB], b.run.Figures["rss plugin peak, MB"] = mb(corePeak), mb(pluginPeak)
	return nil
}

// folder makes a folder for another server of this repetition.
func (b *bench) folder(name string) (string, error) {
	dir := filepath.Join(b.dir, name)
	return dir, os.MkdirAll(dir, 0o755) //nolint:gosec // programs run as other users
}

// keep writes the report to a file; none if the path is empty.
func (r *report) keep(path string) error {
	if path == "" {
		return nil
	}
	raw, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(raw, '\n'), 0o644) //nolint:gosec // numbers are for everybody
}

// measure is one thing that is timed once a round.
type measure struct {
	name  string
	every int // only each n-th round: slow things would otherwise set the pace
	do    func() (time.Duration, error)
}

// timed returns what do takes as a whole.
func timed(do func() error) func() (time.Duration, error) {
	return func() (time.Duration, error) {
		begin := time.Now()
		err := do()
		return time.Since(begin), err
	}
}

// add keeps a sample.
func (r *report) add(series string, took time.Duration) {
	r.Samples[series] = append(r.Samples[series], float64(took.Microseconds())/1000)
}

// interleave takes its turns with those of measures that are asked for.
func (b *bench) interleave(measures []measure) error { return b.interleaveRounds(measures, b.rounds) }

func (b *bench) interleaveRounds(measures []measure, rounds int) error {
	measures = slices.DeleteFunc(measures, func(m measure) bool { return !b.wants(m.name) })
	for round := range rounds + 1 { // the first warms up, and proves that each works
		for _, m := range measures {
			if round > 0 && (round-1)%m.every != 0 {
				continue
			}
			took, err := m.do()
			if err != nil {
				return fmt.Errorf("%s: %w", m.name, err)
			}
			if round > 0 {
				b.run.add(m.name, took)
			}
		}
	}
	return nil
}
