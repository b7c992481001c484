package dockerbackend

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/fetchproxy"
	"github.com/python-executor/python-executor/core/requirements"
	"github.com/python-executor/python-executor/core/runner"
)

// prepared is the outcome of a preparation: an image, or the reason why there is none.
type prepared struct {
	info    imageInfo
	failure *executor.Failure
}

// prepareFolder holds the files that a preparation adds to an image. toolsFolder is removed at the end, and preparedEnv is the
// Python environment.
const (
	prepareFolder = "/opt/python-executor"
	toolsFolder   = prepareFolder + "/tools"
	preparedEnv   = prepareFolder + "/env"
)

// prepare runs spec's pre_commands on base and then installs its requirements. Each step makes an image, which is kept and
// reused. A Failure means that the commands or requirements are at fault, or that the package index is out of reach. An error
// means that this backend or the daemon failed. progress is called as in ensure. If ctx ends, prepare removes what it began
// before it returns, unless another caller waits for it.
func (i *images) prepare(ctx context.Context, base imageInfo, spec executor.Spec, progress func(executor.Progress)) (imageInfo, *executor.Failure, error) {
	commands := slices.DeleteFunc(slices.Clone(spec.PreCommands), func(c string) bool { return strings.TrimSpace(c) == "" })
	lines, err := requirements.Normalise(spec.Requirements, requirements.Options{AllowBuilds: i.settings.allowBuilds, Setting: i.settings.section + ".allow_builds", CheckURL: i.settings.fetches.CheckURL})
	if err != nil {
		return imageInfo{}, requirements.Refused(err), nil
	}
	var failure *executor.Failure
	at := base
	if len(commands) > 0 {
		settings := i.settings.given(base.Trusted, false)
		key := hashOf(append([]string{"commands/2", base.ID, fmt.Sprint(settings.fewerThan(i.settings))}, commands...)...)
		at, failure, err = i.derive(ctx, key, base, progress, func(ctx context.Context, progress func(executor.Progress)) (prepared, error) {
			return i.runCommands(ctx, key, base, settings, commands, progress)
		})
		if failure != nil || err != nil {
			return imageInfo{}, failure, err
		}
	}
	if len(lines) > 0 {
		under := at
		python, err := i.interpreter(ctx, under)
		if err != nil {
			return imageInfo{}, nil, err
		}
		if failure := noPython(python, spec.PythonVersion); failure != nil {
			return imageInfo{}, failure, nil
		}
		foreign := len(commands) > 0
		settings := i.settings.given(base.Trusted, foreign)
		// Without the credentials an index may offer other packages.
		key := hashOf(append([]string{
			"requirements/3", under.ID, i.settings.key, fmt.Sprint(i.settings.allowBuilds), fmt.Sprint(settings.fewerThan(i.settings)),
		}, lines...)...)
		at, failure, err = i.derive(ctx, key, under, progress, func(ctx context.Context, progress func(executor.Progress)) (prepared, error) {
			return i.install(ctx, installation{key: key, base: under, asked: base, python: python, lines: lines, foreign: foreign, settings: settings}, progress)
		})
		if failure != nil || err != nil {
			return imageInfo{}, failure, err
		}
	}
	at.Digest = base.Digest
	return at, nil, nil
}

// noPython returns a Failure if an image has no Python, or another minor version than the requested one.
func noPython(python runner.Interpreter, minor string) *executor.Failure {
	switch {
	case python.Path == "":
		return fault(executor.Invalid, "requirements_txt", "the image has no Python to install requirements for")
	case minor != "" && python.Minor() != minor:
		return fault(executor.Invalid, "python_version", fmt.Sprintf("must match the image, whose Python is %s (got %q)", python.Version, minor))
	}
	return nil
}

// fault returns a Failure of the phase prepare.
func fault(code executor.Code, field, message string) *executor.Failure {
	return &executor.Failure{Code: code, Phase: executor.PhasePrepare, Field: field, Message: message}
}

// derive returns the image of key. If there is none, work makes it.
func (i *images) derive(ctx context.Context, key string, base imageInfo, progress func(executor.Progress), work func(context.Context, func(executor.Progress)) (prepared, error)) (imageInfo, *executor.Failure, error) {
	if at, ok, err := i.find(ctx, key, base); ok || err != nil {
		return at, nil, err
	}
	done, err := i.prepares.Do(ctx, key, progress, func(ctx context.Context, progress func(executor.Progress)) (prepared, error) {
		if at, ok, err := i.find(ctx, key, base); ok || err != nil {
			return prepared{info: at}, err
		}
		i.cache.misses.Add(1)
		ctx, cancel := context.WithTimeoutCause(ctx, i.settings.timeout, errPrepareTime)
		defer cancel()
		done, err := work(ctx, progress)
		if errors.Is(err, errPrepareTime) {
			done, err = prepared{failure: i.lateFailure("")}, nil
		}
		if done.failure == nil && err == nil {
			i.prepares.Go(i.cache.evict)
		}
		return done, err
	})
	return done.info, done.failure, err
}

var errPrepareTime = errors.New("the preparation timed out")

// lateFailure returns the Failure of a preparation that timed out. field names the field that caused it.
func (i *images) lateFailure(field string) *executor.Failure {
	return fault(executor.Exhausted, field, fmt.Sprintf("not prepared within %s (%s.timeout_seconds)", i.settings.timeout, i.settings.section))
}

// find looks for the image of key in the cache.
func (i *images) find(ctx context.Context, key string, base imageInfo) (imageInfo, bool, error) {
	facts, ok, err := i.cache.find(ctx, key)
	if !ok || err != nil {
		return imageInfo{}, false, err
	}
	at, err := i.preparedInfo(facts, base)
	if err != nil {
		return imageInfo{}, false, err
	}
	i.cache.hits.Add(1)
	return at, true, nil
}

// preparedInfo builds the imageInfo of a prepared image of base, and remembers it.
func (i *images) preparedInfo(facts imageFacts, base imageInfo) (imageInfo, error) {
	path, env := splitPath(facts.Env)
	at := imageInfo{ID: facts.ID, Digest: base.Digest, Path: path, Env: env, Volumes: facts.Volumes}
	if raw, ok := facts.Labels[labelRequirements]; ok {
		if err := json.Unmarshal([]byte(raw), &at.Requirements); err != nil {
			return imageInfo{}, executor.Errorf(executor.Internal, "prepared image %s: %w", facts.ID, err)
		}
		at.Path = preparedEnv + "/bin:" + path
	}
	i.remember(facts.ID, at)
	return at, nil
}

// installation describes an image of requirements to make.
type installation struct {
	key string
	// base is the image to install on. asked is the requested image: base itself, or the image that base was prepared from.
	base, asked imageInfo
	python      runner.Interpreter
	lines       []string
	// foreign reports whether users' commands made the base. They may have replaced Python, so the installation gets only what
	// they had: the network of programs, and no credentials of indexes.
	foreign bool
	// settings are those that the installation gets, without the credentials that are withheld.
	settings prepareSettings
}

// install makes the image of requirements. The installer runs as the programs' user, without capabilities.
func (i *images) install(ctx context.Context, n installation, progress func(executor.Progress)) (prepared, error) {
	key, base, python, lines, settings := n.key, n.base, n.python, n.lines, n.settings
	network, err := i.installNetwork(ctx, n.foreign)
	if err != nil {
		return prepared{}, err
	}
	progress(executor.Progress{Phase: executor.PhasePrepare, Message: fmt.Sprintf("installing %d requirements for Python %s", len(lines), python.Version)})
	s := preparationSpec(i.place, i.settings, base, stage{command: []string{python.Path, "-I", "-c", requirements.Driver}, user: user(), network: network}, newName(kindPrepare), time.Now())
	bring := bringSpec{tools: true}
	if settings.bundle != "" {
		bring.bundle = toolsFolder + "/ca.pem"
	}
	if settings.netrc != "" {
		bring.netrc = toolsFolder + "/netrc"
	}
	links := slices.Clone(settings.links)
	for n, folder := range i.settings.folders {
		inside := fmt.Sprintf("%s/links%d", toolsFolder, n)
		links = append(links, inside)
		bring.folders = append(bring.folders, broughtFolder{from: folder, to: inside})
	}
	job, err := json.Marshal(requirements.DriverJob{
		Base: prepareFolder, Tools: toolsFolder, Requirements: lines, AllowBuilds: i.settings.allowBuilds,
		Env: settings.forTools(bring.bundle, bring.netrc, links), Sources: i.settings.fetches.Sources, Closed: fetchproxy.Closed(),
	})
	if err != nil {
		return prepared{}, err
	}
	said := &requirements.Tail{Max: 8 << 10}
	steps := &requirements.Steps{Notify: progress}
	var outcome requirements.DriverOutcome
	answer := &requirements.Tail{Max: requirements.MaxLine}
	var facts imageFacts
	run := stageRun{
		stdin:  append(job, '\n'),
		stdout: answer.Add,
		stderr: func(line string) { said.Add(line); steps.Line(line) },
		before: func(ctx context.Context, id string) error { return i.bring(ctx, id, bring) },
		after: func(ctx context.Context, id string) (err error) {
			if err := json.Unmarshal([]byte(answer.String()), &outcome); err != nil || outcome.Failed != "" {
				return nil //nolint:nilerr // the caller reads outcome
			}
			list, err := json.Marshal(outcome.Requirements)
			if err != nil {
				return err
			}
			facts, err = i.commit(ctx, id, key, map[string]string{labelPrepared: key, labelRequirements: string(list)})
			return err
		},
	}
	end, err := i.runStage(ctx, s, run)
	if err != nil {
		return prepared{}, err
	}
	if failure := i.limitFailure(end, "requirements_txt"); failure != nil {
		return prepared{failure: failure}, nil
	}
	words := requirements.Clean(said.String(), prepareFolder)
	switch {
	case outcome.Refused != "":
		return prepared{failure: requirements.Refused(errors.New(requirements.NotPublic(outcome.Refused)))}, nil
	case outcome.Failed == "install":
		return prepared{failure: i.installFailure(n, words)}, nil
	case outcome.Failed == "tool":
		return prepared{failure: fault(executor.Invalid, "requirements_txt", "the image has neither pip nor venv, and no uv of this host runs in it: install uv on the host of the backend, or use an image with pip")}, nil
	case outcome.Python == "":
		return prepared{failure: fault(executor.Internal, "", fmt.Sprintf("the environment could not be made (exit code %d): %s", end.exit, words))}, nil
	}
	i.log.Info("requirements installed", "tool", outcome.Tool, "packages", len(outcome.Requirements), "image", facts.ID)
	info, err := i.preparedInfo(facts, base)
	return prepared{info: info}, err
}

// refusedForm matches the messages of uv and pip about an index that requires credentials.
var refusedForm = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`(?i)\b40[137]\b|unauthorized|forbidden|authentication`)
})

// installFailure returns the Failure of an installation whose output ends with words. If credentials were withheld, the message
// says so: an index that requires credentials may also answer that it has no such package.
func (i *images) installFailure(n installation, words string) *executor.Failure {
	failure := requirements.Classify(words)
	if failure.Code == executor.Unavailable && i.runsForeignCode(n.foreign) && i.settings.network == "" {
		failure.Message += fmt.Sprintf("\nthe installation had the network of programs, because code of packages (allow_builds) or of pre_commands runs in it: "+
			"name a network from which the package sources are reached in %s.network", i.settings.section)
	}
	if !n.settings.fewerThan(i.settings) {
		return failure
	}
	if refusedForm().MatchString(words) { // a retry would fail as well
		failure.Code, failure.Field = executor.Invalid, "requirements_txt"
	}
	why := fmt.Sprintf("the installation had no credentials of indexes and proxies, because the image is not trusted: add %q to %s", n.asked.Name, i.settings.trust)
	if n.asked.Trusted {
		why = "the installation had no credentials of indexes, because pre_commands came before it: use a trusted image that has what they make"
	}
	failure.Message = why + "\n" + failure.Message
	return failure
}

// limitFailure returns the Failure of a preparation that reached a limit; nil if it reached none.
func (i *images) limitFailure(end stageEnd, field string) *executor.Failure {
	switch {
	case end.full:
		return fault(executor.Exhausted, field, fmt.Sprintf("wrote more than %d MiB (%s.disk_mb)", i.settings.disk>>20, i.settings.section))
	case end.outOfMemory && end.exit != 0:
		return fault(executor.Exhausted, field, fmt.Sprintf("needed more than %d MiB of memory (%s.memory_mb)", i.settings.memory>>20, i.settings.section))
	}
	return nil
}

// runsForeignCode reports whether an installation runs code that callers choose: a build of a package, or what users' commands made.
func (i *images) runsForeignCode(foreign bool) bool { return foreign || i.settings.allowBuilds }

// installNetwork returns the network of installations: the configured network, else the daemon's bridge, else that of programs.
// With code that callers choose it is the network of programs, unless one is configured: from the bridge the code could reach the
// operator's network.
func (i *images) installNetwork(ctx context.Context, foreign bool) (string, error) {
	if i.settings.network != "" {
		return i.settings.network, nil
	}
	if i.runsForeignCode(foreign) {
		return i.network(ctx)
	}
	const bridge = "bridge"
	if err := i.daemon.findNetwork(ctx, bridge); executor.CodeOf(err) != executor.NotFound {
		return bridge, err
	}
	return i.network(ctx)
}
