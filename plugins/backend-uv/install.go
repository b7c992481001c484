package uvbackend

import (
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"strings"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/requirements"
)

// install runs uv twice in a build slot: to make an empty environment, and to install the requirements. uv reads no configuration
// and downloads no interpreter. It builds packages only with allow_builds. Installed files are copies, not links to its cache.
//
// x.fresh has what was there before the packages.
func (b *builder) install(ctx context.Context, x *buildSlot, program uvProgram, w want, notify func(executor.Progress)) (*executor.Failure, error) {
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
		var said boundedBuffer
		steps := requirements.Steps{Notify: notify}
		result, failure, err := x.run(ctx, network, env, io.MultiWriter(&said, &requirements.Lines{Tell: steps.Line}), append([]string{program.path}, args...)...)
		return result, requirements.Clean(said.String(), x.temp), failure, err
	}
	result, said, failure, err := run(false, "venv", "--no-project", "--no-config", "--relocatable", "--python", w.interpreter.Path, dir)
	if failure != nil || err != nil {
		return failure, err
	}
	if result.Status != executor.StatusSucceeded {
		return nil, fmt.Errorf("make an environment for %s: %s: %s", w.interpreter.Path, result.Status, said)
	}
	if x.fresh, err = lookAtNew(dir); err != nil {
		return nil, err
	}
	args := []string{"pip", "install", "--no-config", "--python", filepath.Join(dir, "bin", "python"), "--prerelease", "if-necessary-or-explicit", "-r", list}
	if !b.config.AllowBuilds {
		args = append(args, "--only-binary", ":all:")
	}
	result, said, failure, err = run(true, args...)
	switch {
	case failure != nil || err != nil:
		return failure, err
	case result.Status == executor.StatusSucceeded:
		return nil, nil
	case result.Status == executor.StatusOutOfMemory:
		return b.tooMuchMemory("installing the requirements", ""), nil
	}
	f := requirements.Classify(said)
	if trouble := x.proxy.Trouble(); f.Code == executor.Unavailable && trouble != nil {
		f.Message += "\n" + requirements.WithoutCredentials(trouble.Error())
	}
	return f, nil
}

// environ returns the environment of uv. If packages may be built, their code sees it.
func (b *builder) environ(x *buildSlot) (map[string]string, error) {
	env, err := x.lend(b.index.uv)
	if err != nil {
		return nil, err
	}
	maps.Copy(env, map[string]string{
		"LANG": "C.UTF-8", "HOME": filepath.Join(x.temp, "home"), "TMPDIR": filepath.Join(x.temp, "tmp"),
		"UV_CACHE_DIR": x.packages, "UV_LINK_MODE": "copy", "UV_NO_CONFIG": "1", "UV_NO_ENV_FILE": "1", "UV_PYTHON_DOWNLOADS": "never",
		"UV_NO_PROGRESS": "1", "NO_COLOR": "1",
	})
	return env, nil
}

func unavailable(message string) *executor.Failure {
	return &executor.Failure{Code: executor.Unavailable, Phase: executor.PhasePrepare, Message: message}
}
