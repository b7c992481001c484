package dockerbackend

import (
	"context"
	"errors"
	"fmt"
	"regexp"

	"github.com/docker/cli/cli/config"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/requirements"
)

// credentialsFile is the folder of the docker command's settings (config.json); empty: none.
type credentialsFile string

// dockerHub is the name of docker.io in the docker command's settings.
const dockerHub = "https://index.docker.io/v1/"

// of reads what a registry wants to see, from the settings or the credential helper that they name (credsStore,
// credHelpers), each time anew: somebody may log in while we run.
func (f credentialsFile) of(registry string) (credentials, error) {
	if f == "" {
		return credentials{}, nil
	}
	settings, err := config.Load(string(f))
	if err != nil {
		return credentials{}, fmt.Errorf("read the docker command's settings: %w", err)
	}
	if registry == "docker.io" {
		registry = dockerHub
	}
	found, err := settings.GetAuthConfig(registry)
	if err != nil {
		return credentials{}, fmt.Errorf("ask the credential helper: %w", err)
	}
	if found.Username == "" && found.Password == "" && found.IdentityToken == "" && found.RegistryToken == "" {
		return credentials{}, nil
	}
	return credentials{
		username: found.Username, password: found.Password, identityToken: found.IdentityToken, registryToken: found.RegistryToken, server: found.ServerAddress,
	}, nil
}

// pull fetches an image from its registry.
func (i *images) pull(ctx context.Context, r imageRef, progress func(executor.Progress)) error {
	who, err := i.host.docker.of(r.registry())
	if err != nil {
		// Without them the registry may still give what is public.
		i.log.Warn("registry credentials cannot be read", "registry", r.registry(), "error", err)
	}
	p := newPullProgress("pulling "+r.familiar(), progress)
	err = i.daemon.pull(ctx, r.String(), who, p.line)
	if said, ok := errors.AsType[errPull](err); ok {
		return pullError(r, said.text, who != credentials{})
	}
	return err
}

// pullProgress adds up the layers of a pull.
type pullProgress struct {
	message string
	tell    func(executor.Progress)
	layers  map[string]pullLine
}

func newPullProgress(message string, tell func(executor.Progress)) *pullProgress {
	p := &pullProgress{message: message, tell: tell, layers: map[string]pullLine{}}
	tell(executor.Progress{Phase: executor.PhasePrepare, Message: message})
	return p
}

func (p *pullProgress) line(l pullLine) {
	switch l.Status {
	case "Downloading":
		p.layers[l.Layer] = l
	case "Download complete", "Verifying Checksum", "Extracting", "Pull complete":
		if known, ok := p.layers[l.Layer]; ok {
			known.Done = known.Total
			p.layers[l.Layer] = known
		}
	default:
		return
	}
	e := executor.Progress{Phase: executor.PhasePrepare, Message: p.message, Unit: "bytes"}
	for _, layer := range p.layers {
		e.Done += layer.Done
		e.Total += max(layer.Total, layer.Done)
	}
	p.tell(e)
}

// There are only the words of daemons and registries to tell one reason from another.
var (
	unauthorisedForm = regexp.MustCompile(`(?i)unauthorized|authentication required|no basic auth credentials|incorrect username or password|denied: |access forbidden|pull access denied`)
	absentForm       = regexp.MustCompile(`(?i)not found|manifest unknown|name unknown|repository does not exist|no matching manifest`)
	busyForm         = regexp.MustCompile(`(?i)toomanyrequests|too many requests|rate limit`)
	diskForm         = regexp.MustCompile(`(?i)no space left on device|disk quota exceeded`)
)

// pullError is what a failed pull means for whoever asked: an error of the field docker_image, because the daemon itself
// is well. loggedIn: credentials were sent.
func pullError(r imageRef, said string, loggedIn bool) error {
	said = shorten(requirements.WithoutCredentials(said), 1000)
	const field = "docker_image"
	name := r.familiar()
	switch {
	case diskForm.MatchString(said):
		return executor.FieldErrorf(executor.Unavailable, field, "no space for %s: %s", name, said)
	case busyForm.MatchString(said):
		return executor.FieldErrorf(executor.Unavailable, field, "the registry of %s is busy: %s", name, said)
	case unauthorisedForm.MatchString(said):
		hint := "it may not exist, or need credentials: docker login " + r.registry() + " on the host of python-executor"
		if loggedIn {
			hint = "it may not exist, or our credentials may not be good for it"
		}
		return executor.FieldErrorf(executor.Denied, field, "%s could not be pulled: %s (%s)", name, hint, said)
	case absentForm.MatchString(said):
		return executor.FieldErrorf(executor.Invalid, field, "%s does not exist: %s", name, said)
	}
	return executor.FieldErrorf(executor.Unavailable, field, "%s could not be pulled: %s", name, said)
}
