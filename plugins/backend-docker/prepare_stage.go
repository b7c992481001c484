package dockerbackend

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/requirements"
)

// stage is one container of a preparation.
type stage struct {
	command      []string
	user         string
	network      string // empty: none
	capabilities []string
}

const (
	// preparePIDs bounds the processes and threads of a preparation.
	preparePIDs = 1024
	// prepareShares is half of what a program gets: preparations give way.
	prepareShares = 512
	// toldTime bounds the question whether a container was killed: the daemon notes that right after it has.
	toldTime = time.Second
	// diskPause is how often a preparation's disk is looked at.
	diskPause = 3 * time.Second
)

// commandCapabilities are what apt, dpkg, apk and dnf need of root: owners and modes of files, and to become the user that
// downloads. None reaches beyond the container.
var commandCapabilities = []string{"CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "SETFCAP", "SETGID", "SETUID"}

// preparationSpec builds the container of a stage on an image. It is pure: now is given.
func preparationSpec(p place, settings prepareSettings, on imageInfo, s stage, name string, now time.Time) containerSpec {
	unix := func(t time.Time) string { return strconv.FormatInt(t.Unix(), 10) }
	c := containerSpec{
		Name: name, Image: on.ID, Command: s.command, User: s.user, Folder: "/", Network: cmp.Or(s.network, defaultNetworkNone),
		Runtime: p.Runtime, WritableRoot: true, Capabilities: s.capabilities, NanoCPUs: p.NanoCPUs,
		Capacity: capacity{MemoryBytes: settings.memory, CPUShares: prepareShares, PIDs: p.Under.pids(preparePIDs)},
		Labels: map[string]string{
			labelInstance: p.Instance, labelBoot: p.Boot, labelKind: kindPrepare,
			labelCreated: unix(now), labelDeadline: unix(now.Add(settings.timeout + time.Minute)),
		},
		Tmpfs: map[string]string{},
	}
	for _, path := range on.Volumes {
		// A volume would be a folder of the daemon's disk without a limit, and is not kept anyway.
		c.Tmpfs[path] = tmpfs(scratchBytes, "0755", false)
	}
	return c
}

// stageRun is what goes on around and inside a stage's container.
type stageRun struct {
	stdin          []byte
	stdout, stderr func(line string)
	// before is called with the container made and not started, after with it ended by exit code 0 within its limits.
	before, after func(ctx context.Context, id string) error
}

// stageEnd is how a stage ended.
type stageEnd struct {
	exit        int
	outOfMemory bool
	// full: it wrote more than it may.
	full bool
}

// errDiskFull ends a stage that writes too much.
var errDiskFull = errors.New("the preparation's disk is full")

// runStage runs a container to its end and removes it. Codes: invalid (its command cannot be executed), not_found (the
// image is gone), unavailable; the end of ctx gives its cause, with nothing left.
func (i *images) runStage(ctx context.Context, s containerSpec, run stageRun) (end stageEnd, err error) {
	id, err := i.daemon.create(ctx, s)
	if err != nil {
		return stageEnd{}, errors.Join(context.Cause(ctx), i.removeByName(ctx, s.Name, err))
	}
	defer func() {
		ctx, cancel := cleanUp(ctx)
		defer cancel()
		if failed := i.daemon.remove(ctx, id); failed != nil {
			i.log.Error("a preparation's container is left", "container", id, "error", failed)
		}
	}()
	if run.before != nil {
		if err := run.before(ctx, id); err != nil {
			return stageEnd{}, err
		}
	}
	watched, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	err = i.converse(watched, id, run, &end)
	if s.WritableRoot && err == nil {
		err = i.overfull(ctx, id)
	}
	if errors.Is(err, errDiskFull) {
		return stageEnd{full: true}, nil
	}
	if err != nil || end.exit != 0 {
		return end, err
	}
	if run.after != nil {
		err = run.after(ctx, id)
	}
	return end, err
}

// removeByName removes a container whose creation was asked for and not answered: it may have been made. err is why.
func (i *images) removeByName(ctx context.Context, name string, err error) error {
	if ctx.Err() == nil {
		return err
	}
	ctx, cancel := cleanUp(ctx)
	defer cancel()
	return errors.Join(err, i.daemon.remove(ctx, name))
}

// converse starts a container, talks to it and waits for its end.
func (i *images) converse(ctx context.Context, id string, run stageRun, end *stageEnd) error {
	ctx, stop := context.WithCancelCause(ctx)
	conn, in, err := i.daemon.attach(ctx, id)
	if err != nil {
		stop(nil)
		return err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	wait := i.daemon.ended(ctx, id)
	var beside sync.WaitGroup
	defer func() {
		stop(nil)
		conn.Close()
		beside.Wait()
	}()
	if err := i.daemon.start(ctx, id); err != nil {
		return err
	}
	if len(run.stdin) > 0 {
		beside.Go(func() {
			_, _ = conn.Write(run.stdin) // one that reads nothing ends by its own fault; what it says tells
		})
	}
	beside.Go(func() { i.watchDisk(ctx, id, stop) })
	stdout, stderr := &lines{tell: run.stdout}, &lines{tell: run.stderr}
	// Until the container's end, or ctx's, which closes conn.
	if err := demultiplex(in, stdout, stderr); err != nil && ctx.Err() == nil {
		i.log.Debug("a preparation's output broke off", "container", id, "error", err)
	}
	stdout.flush()
	stderr.flush()
	if end.exit, err = wait(); err != nil {
		return err
	}
	c, err := i.daemon.inspect(ctx, id)
	end.outOfMemory = c.OutOfMemory
	if end.exit == killedCode && (executor.CodeOf(err) == executor.NotFound || err == nil && !c.OutOfMemory && i.killed(ctx, id)) {
		return executor.Errorf(executor.Unavailable, "the preparation's container was killed")
	}
	return err
}

// killed reports whether the daemon was told to kill a container that has ended. What ends by itself may have the same exit
// code.
func (i *images) killed(ctx context.Context, id string) bool {
	ctx, cancel := context.WithTimeoutCause(ctx, toldTime, errSilent)
	defer cancel()
	c, err := i.daemon.end(ctx, id)
	return err == nil && c.Told
}

// watchDisk stops a stage that writes more than it may. What it writes between two looks is bounded by the disk's speed.
func (i *images) watchDisk(ctx context.Context, id string, stop context.CancelCauseFunc) {
	again := time.NewTicker(diskPause)
	defer again.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-again.C:
			if err := i.overfull(ctx, id); err != nil {
				stop(err)
			}
		}
	}
}

func (i *images) overfull(ctx context.Context, id string) error {
	written, err := i.daemon.written(ctx, id)
	if err == nil && written > i.settings.disk {
		err = errDiskFull
	}
	return err
}

// commit makes the image of key of a container that has ended.
func (i *images) commit(ctx context.Context, id, key string, labels map[string]string) (imageFacts, error) {
	written, err := i.daemon.written(ctx, id)
	if err != nil {
		return imageFacts{}, err
	}
	labels[labelBytes] = strconv.FormatInt(written, 10)
	for _, of := range []string{labelInstance, labelBoot, labelKind, labelCreated, labelDeadline} {
		labels[of] = "" // the container's, not the image's
	}
	image, err := i.daemon.commit(ctx, id, preparedName(key), labels)
	if err != nil {
		return imageFacts{}, fmt.Errorf("keep what was prepared: %w", err)
	}
	return i.daemon.image(ctx, image)
}

// lines calls tell with every line that is written, cut at a length.
type lines struct {
	tell func(string)
	rest []byte
}

func (l *lines) Write(p []byte) (int, error) {
	l.rest = append(l.rest, p...)
	for {
		end := bytes.IndexAny(l.rest, "\r\n")
		if end < 0 {
			if len(l.rest) <= maxAnswer {
				return len(p), nil
			}
			end = maxAnswer
		}
		l.say(l.rest[:end])
		l.rest = l.rest[min(end+1, len(l.rest)):]
	}
}

func (l *lines) flush() {
	if len(l.rest) > 0 {
		l.say(l.rest)
		l.rest = nil
	}
}

func (l *lines) say(line []byte) {
	if l.tell != nil && len(line) > 0 {
		l.tell(strings.ToValidUTF8(string(line), "\uFFFD"))
	}
}

// tail keeps the last bytes of what is added, line by line.
type tail struct {
	most int
	text []byte
	cut  bool
}

func (t *tail) add(line string) {
	t.text = append(append(t.text, line...), '\n')
	if over := len(t.text) - t.most; over > 0 {
		t.text, t.cut = append(t.text[:0], t.text[over:]...), true
	}
}

func (t *tail) reset() { t.text, t.cut = t.text[:0], false }

func (t *tail) String() string {
	text := strings.ToValidUTF8(strings.TrimRight(string(t.text), "\n"), "")
	if t.cut {
		text = "…" + text
	}
	return text
}

// printable drops what would move a terminal's cursor.
func printable(line string) string {
	return strings.TrimSpace(strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && r != '\t' {
			return -1
		}
		return r
	}, line))
}

// toolLines turns what uv and pip say into progress.
type toolLines struct {
	notify func(executor.Progress)
	total  int64
}

var (
	resolvedLine = regexp.MustCompile(`^Resolved (\d+) packages? `)
	tellingLine  = regexp.MustCompile(`^\s*(Resolved|Downloading|Downloaded|Prepared|Installed|Building|Built|Collecting|Installing collected|Successfully installed)\b`)
)

func (t *toolLines) line(line string) {
	line = printable(line)
	if m := resolvedLine.FindStringSubmatch(line); m != nil {
		t.total, _ = strconv.ParseInt(m[1], 10, 64) // digits
	}
	if !tellingLine.MatchString(line) {
		return
	}
	e := executor.Progress{Phase: executor.PhasePrepare, Message: shorten(requirements.WithoutCredentials(line), 200)}
	if t.total > 0 {
		e.Total, e.Unit = t.total, "packages"
		if strings.HasPrefix(line, "Installed") {
			e.Done = t.total
		}
	}
	t.notify(e)
}

// cleanWords takes our own paths, the index's credentials and chatter out of what a tool said. The first warning about a
// connection stays: pip says nowhere else that the index is out of reach.
func cleanWords(said string) string {
	var kept []string
	retried := false
	for _, line := range strings.Split(requirements.WithoutCredentials(strings.ReplaceAll(said, prepareFolder+"/", "")), "\n") {
		line = strings.TrimRight(line, " \t\r")
		if strings.HasPrefix(line, "WARNING: Retrying") {
			if retried {
				continue
			}
			retried = true
		}
		if line != "" && !strings.HasPrefix(line, "Using Python ") && !strings.HasPrefix(line, "Resolved ") && !strings.HasPrefix(line, "warning: ") {
			kept = append(kept, line)
		}
	}
	return requirements.Shorten(strings.Join(kept, "\n"), 8<<10)
}

var _ io.Writer = (*lines)(nil)
