package dockerbackend

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/requirements"
)

// runCommands makes the image of pre_commands. Each command runs in its own shell, as root with only the capabilities that
// package managers need. It uses the network of preparations if one is configured, else that of programs.
func (i *images) runCommands(ctx context.Context, key string, base imageInfo, settings prepareSettings, commands []string, progress func(executor.Progress)) (prepared, error) {
	network, err := i.network(ctx)
	if err != nil {
		return prepared{}, err
	}
	s := preparationSpec(i.place, i.settings, base, stage{command: []string{"/bin/sh", "-s"}, user: "0:0", network: cmp.Or(i.settings.network, network), capabilities: commandCapabilities}, newName(kindPrepare), time.Now())
	var bundle, apt string
	if i.settings.bundle != "" {
		bundle, apt = toolsFolder+"/ca.pem", toolsFolder+"/apt.conf"
	}
	log := requirements.NewCommands(commands, func(message string) {
		progress(executor.Progress{Phase: executor.PhasePrepare, Message: message})
	})
	run := stageRun{
		// The shell reads the script from its standard input: settings of the container would become settings of the image.
		stdin:  log.Script(settings.forCommands(bundle, apt), toolsFolder),
		stderr: log.Line,
		before: func(ctx context.Context, id string) error {
			return i.bring(ctx, id, bringSpec{bundle: bundle, apt: apt})
		},
	}
	labels := map[string]string{labelPrepared: key}
	var facts imageFacts
	run.after = func(ctx context.Context, id string) (err error) {
		facts, err = i.commit(ctx, id, key, labels)
		return err
	}
	end, err := i.runStage(ctx, s, run)
	switch {
	case executor.CodeOf(err) == executor.Invalid:
		return prepared{failure: fault(executor.Invalid, "pre_commands", "the image has no /bin/sh to run commands: "+err.Error())}, nil
	case errors.Is(err, errPrepareTime):
		return prepared{failure: log.Failure(executor.Exhausted, "was still running: "+i.lateFailure("").Message)}, nil
	case err != nil:
		return prepared{}, err
	}
	if failure := i.limitFailure(end, "pre_commands"); failure != nil {
		return prepared{failure: log.Failure(failure.Code, failure.Message)}, nil
	}
	if end.exit != 0 {
		return prepared{failure: log.Exited(end.exit)}, nil
	}
	info, err := i.preparedInfo(facts, base)
	return prepared{info: info}, err
}
