package jobs

import (
	"strings"

	"github.com/hashicorp/nomad/api"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/runner/protocol"
)

// classify returns the outcome of a task that has ended without a last record of its runner. started says that the program was started,
// asked that the caller has stopped it. The end of memory and an image that cannot be used are the user's; the rest is ours.
func classify(a *allocation, task string, started, asked bool, memory int64) (executor.Result, error) {
	state := a.Tasks[task]
	if state == nil {
		state = &api.TaskState{}
	}
	killed := executor.Result{Status: executor.StatusKilled, CPU: -1}
	if started {
		killed.Signal = "SIGKILL"
	}
	if asked {
		return killed, nil
	}
	if a.Client == api.AllocClientStatusLost {
		return executor.Result{}, executor.Errorf(executor.Unavailable, "node %s is out of reach: %s", a.NodeName, a.ClientWords)
	}
	var words []string
	whole := false
	for _, e := range state.Events {
		switch e.Type {
		case api.TaskTerminated:
			if e.Details["oom_killed"] == "true" && started {
				return executor.Result{Status: executor.StatusOutOfMemory, Signal: "SIGKILL", CPU: -1, Failure: protocol.OutOfMemory(memory)}, nil
			}
			whole = e.Details["exit_code"] == "0"
			words = append(words, e.DisplayMessage)
		case api.TaskDriverFailure:
			text := e.Details["driver_error"]
			if f := imageFailure(text); f != nil && !started {
				return executor.Result{Status: executor.StatusFailed, CPU: -1, Failure: f}, nil
			}
			words = append(words, e.DisplayMessage)
		case api.TaskSetupFailure, api.TaskArtifactDownloadFailed, api.TaskFailedValidation, api.TaskKilled, api.TaskKilling, api.TaskNotRestarting:
			words = append(words, e.DisplayMessage)
		}
	}
	if a.DesiredWords != "" {
		words = append(words, a.DesiredWords)
	}
	if len(words) == 0 {
		words = append(words, a.ClientWords)
	}
	what := "the program was lost"
	switch {
	case whole: // a runner that ends like that has written its last record
		what = "the result is gone: Nomad's client removes the files of ended allocations (gc_max_allocs, gc_disk_usage_threshold)"
	case !started:
		what = "the program was not started"
	}
	return executor.Result{}, executor.Errorf(executor.Unavailable, "%s, in Nomad's words: %s (node %s, allocation %s)", what, strings.Join(words, "; "), a.NodeName, a.ID)
}

// The words of the driver about an image, and those that say that another attempt will fail as well.
var (
	imageWords = []string{"failed to pull", "error pulling", "image pull", "no such image", "failed to find docker auth", "invalid reference format", "manifest"}
	finalWords = []string{
		"not found", "manifest unknown", "access denied", "denied:", "no such image", "invalid reference", "unauthorized", "does not exist",
		"no matching manifest", "no such host",
	}
)

// imageFailure returns the Failure of an image that cannot be pulled, and of one in which the runner cannot be started; nil for all other
// words.
func imageFailure(text string) *executor.Failure {
	lower := strings.ToLower(text)
	has := func(list []string) bool {
		for _, words := range list {
			if strings.Contains(lower, words) {
				return true
			}
		}
		return false
	}
	if !has(imageWords) {
		return nil
	}
	code := executor.Unavailable
	if has(finalWords) {
		code = executor.Invalid
	}
	return &executor.Failure{Code: code, Phase: executor.PhasePrepare, Field: "docker_image", Message: text}
}
