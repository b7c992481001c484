package uvbackend

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/requirements"
)

// install runs uv twice in a box: an empty environment, then the requirements. uv reads no configuration, downloads no
// interpreter, builds nothing unless told to, and shares no file with its cache.
func (b *builder) install(ctx context.Context, x *box, program uvProgram, w want, notify func(executor.Progress)) (*executor.Failure, error) {
	list := filepath.Join(x.temp, "requirements.txt")
	if err := os.WriteFile(list, []byte(strings.Join(w.requirements, "\n")+"\n"), 0o600); err != nil {
		return nil, err
	}
	if err := x.hand(list); err != nil {
		return nil, err
	}
	env, err := b.environ(x)
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(x.temp, "env")
	run := func(network bool, args ...string) (executor.Result, string, *executor.Failure, error) {
		said := &progressLines{notify: notify}
		result, failure, err := x.run(ctx, network, env, said, append([]string{program.path}, args...)...)
		return result, clean(said.String(), x.temp), failure, err
	}
	result, said, failure, err := run(false, "venv", "--no-project", "--no-config", "--relocatable", "--python", w.interpreter.Path, dir)
	if failure != nil || err != nil {
		return failure, err
	}
	if result.Status != executor.StatusSucceeded {
		return nil, fmt.Errorf("make an environment for %s: %s: %s", w.interpreter.Path, result.Status, said)
	}
	args := []string{"pip", "install", "--no-config", "--python", filepath.Join(dir, "bin", "python"), "--prerelease", "if-necessary-or-explicit", "-r", list}
	if !b.allowBuilds {
		args = append(args, "--only-binary", ":all:")
	}
	result, said, failure, err = run(true, args...)
	switch {
	case failure != nil || err != nil:
		return failure, err
	case result.Status == executor.StatusSucceeded:
		return nil, nil
	case result.Status == executor.StatusOutOfMemory:
		return x.bounds.tooMuchMemory(b.name, "installing the requirements", ""), nil
	}
	return requirements.Classify(said), nil
}

// environ is uv's environment. Where packages may be built, code of theirs sees it.
func (b *builder) environ(x *box) (map[string]string, error) {
	env, err := x.lend(b.index.uv)
	if err != nil {
		return nil, err
	}
	for name, value := range map[string]string{
		"LANG": "C.UTF-8", "HOME": filepath.Join(x.temp, "home"), "TMPDIR": filepath.Join(x.temp, "tmp"),
		"UV_CACHE_DIR": x.packages, "UV_LINK_MODE": "copy", "UV_NO_CONFIG": "1", "UV_NO_ENV_FILE": "1", "UV_PYTHON_DOWNLOADS": "never",
		"UV_NO_PROGRESS": "1", "NO_COLOR": "1",
	} {
		env[name] = value
	}
	return env, nil
}

// progressLines keeps what uv says, bounded, and turns each line into progress.
type progressLines struct {
	boundedBuffer
	notify func(executor.Progress)
	rest   string
	total  int64
}

var resolvedLine = regexp.MustCompile(`^Resolved (\d+) packages? `)

func (p *progressLines) Write(b []byte) (int, error) {
	_, _ = p.boundedBuffer.Write(b)
	text := p.rest + string(b)
	for {
		line, rest, found := strings.Cut(text, "\n")
		if !found {
			break
		}
		text = rest
		p.line(strings.TrimSpace(line))
	}
	p.rest = requirements.Shorten(text, 1024)
	return len(b), nil
}

func (p *progressLines) line(line string) {
	if m := resolvedLine.FindStringSubmatch(line); m != nil {
		_, _ = fmt.Sscan(m[1], &p.total)
	}
	for _, start := range []string{"Resolved", "Downloading", "Downloaded", "Prepared", "Installed", "Building", "Built"} {
		if !strings.HasPrefix(line, start) {
			continue
		}
		e := executor.Progress{Phase: executor.PhasePrepare, Message: requirements.Shorten(line, 200)}
		if p.total > 0 {
			e.Total, e.Unit = p.total, "packages"
			if start == "Installed" {
				e.Done = p.total
			}
		}
		p.notify(e)
	}
}

// clean takes our own paths and the index's credentials out of what uv said.
func clean(said, temp string) string {
	var lines []string
	for _, line := range strings.Split(requirements.WithoutCredentials(strings.ReplaceAll(said, temp+"/", "")), "\n") {
		line = strings.TrimRight(line, " \t\r")
		if line != "" && !strings.HasPrefix(line, "Using Python ") && !strings.HasPrefix(line, "Resolved ") && !strings.HasPrefix(line, "warning: ") {
			lines = append(lines, line)
		}
	}
	return requirements.Shorten(strings.Join(lines, "\n"), 8<<10)
}

func unavailable(message string) *executor.Failure {
	return &executor.Failure{Code: executor.Unavailable, Phase: executor.PhasePrepare, Message: message}
}
