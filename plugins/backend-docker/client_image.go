package dockerbackend

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"path"
	"slices"
	"time"

	"github.com/docker/cli/cli/config/types"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/image"
	"github.com/docker/docker/api/types/registry"
	"github.com/docker/docker/pkg/stdcopy"
)

// imageFacts is the daemon's description of an image.
type imageFacts struct {
	ID          string
	RepoTags    []string
	RepoDigests []string
	SizeBytes   int64
	Labels      map[string]string
	Env         []string
	// Volumes are the folders that the image declares as volumes.
	Volumes []string
	// Tagged is the time of the image's last tag.
	Tagged time.Time
}

// image finds an image by its name or id. Codes: not_found.
func (d *daemon) image(ctx context.Context, ref string) (imageFacts, error) {
	i, err := d.api.ImageInspect(ctx, ref)
	if err != nil {
		return imageFacts{}, failed("inspect image", err)
	}
	f := imageFacts{ID: i.ID, RepoTags: i.RepoTags, RepoDigests: i.RepoDigests, SizeBytes: i.Size, Tagged: i.Metadata.LastTagTime}
	if i.Config != nil {
		f.Labels, f.Env = i.Config.Labels, i.Config.Env
		f.Volumes = volumePaths(i.Config.Volumes)
	}
	return f, nil
}

// volumePaths returns the folders that an image declares as volumes, each once and in the daemon's form: "/data/", "data" and
// "/data" are the same folder. Two mounts on it would hide each other. The root is left out.
func volumePaths(declared map[string]struct{}) []string {
	found := map[string]bool{}
	for name := range declared {
		if folder := path.Join("/", name); folder != "/" {
			found[folder] = true
		}
	}
	return slices.Sorted(maps.Keys(found))
}

// images returns the ids of the images with all these labels.
func (d *daemon) images(ctx context.Context, labels map[string]string) ([]string, error) {
	list, err := d.api.ImageList(ctx, image.ListOptions{Filters: filter(labels)})
	if err != nil {
		return nil, failed("list images", err)
	}
	ids := make([]string, 0, len(list))
	for _, i := range list {
		ids = append(ids, i.ID)
	}
	return ids, nil
}

// removeImage removes an image and its name. Codes: not_found, conflict (a container or another image needs it).
func (d *daemon) removeImage(ctx context.Context, id string) error {
	_, err := d.api.ImageRemove(ctx, id, image.RemoveOptions{PruneChildren: false})
	return failed("remove image", err)
}

// tag gives an image a name. A repeated tag renews imageFacts.Tagged.
func (d *daemon) tag(ctx context.Context, id, name string) error {
	return failed("tag image", d.api.ImageTag(ctx, id, name))
}

// pullLine is one message of the daemon about a pull.
type pullLine struct {
	// Layer is the layer that Status describes; empty for the whole image.
	Layer, Status string
	Done, Total   int64
}

// errPull is the message of a daemon or registry about a failed pull. Only its text tells the reason.
type errPull struct{ text string }

func (e errPull) Error() string { return e.text }

// pull pulls an image and calls tell for each message. A zero login means anonymous access. An error of the registry is an errPull.
func (d *daemon) pull(ctx context.Context, ref string, login types.AuthConfig, tell func(pullLine)) error {
	var options image.PullOptions
	if login != (types.AuthConfig{}) {
		auth, err := registry.EncodeAuthConfig(registry.AuthConfig{
			Username: login.Username, Password: login.Password, IdentityToken: login.IdentityToken, RegistryToken: login.RegistryToken, ServerAddress: login.ServerAddress,
		})
		if err != nil {
			return failed("pull", err)
		}
		options.RegistryAuth = auth
	}
	body, err := d.api.ImagePull(ctx, ref, options)
	if err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if !answered(err) {
			return failed("pull", err) // the daemon is out of reach; it asked no registry
		}
		return errPull{err.Error()}
	}
	defer body.Close()
	for lines := json.NewDecoder(body); ; {
		var line struct {
			ID, Status, Error string
			ProgressDetail    struct{ Current, Total int64 }
		}
		switch err := lines.Decode(&line); {
		case errors.Is(err, io.EOF):
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil:
			return failed("pull", err)
		case line.Error != "":
			return errPull{line.Error}
		}
		tell(pullLine{Layer: line.ID, Status: line.Status, Done: line.ProgressDetail.Current, Total: line.ProgressDetail.Total})
	}
}

// commit makes an image called name of a container's files. labels replace labels of the container. The daemon gives the image
// the container's other settings, such as its environment.
func (d *daemon) commit(ctx context.Context, id, name string, labels map[string]string) (string, error) {
	r, err := d.api.ContainerCommit(ctx, id, container.CommitOptions{Reference: name, Comment: "python-executor", Pause: true, Config: &container.Config{Labels: labels}})
	return r.ID, failed("commit", err)
}

// written returns the bytes that a container has written to its own layer. The daemon reads the whole layer for that.
func (d *daemon) written(ctx context.Context, id string) (int64, error) {
	c, _, err := d.api.ContainerInspectWithRaw(ctx, id, true)
	if err != nil {
		return 0, failed("inspect container", err)
	}
	if c.SizeRw == nil {
		return 0, nil
	}
	return *c.SizeRw, nil
}

// ended starts to wait for the next end of a container, and is called before its start. The returned function blocks until the
// end and returns the exit code.
func (d *daemon) ended(ctx context.Context, id string) func() (int, error) {
	answers, errs := d.api.ContainerWait(ctx, id, container.WaitConditionNextExit)
	return func() (int, error) {
		select {
		case a := <-answers:
			if a.Error != nil {
				return 0, failed("wait", errors.New(a.Error.Message))
			}
			return int(a.StatusCode), nil
		case err := <-errs:
			if ctx.Err() != nil {
				return 0, context.Cause(ctx)
			}
			return 0, failed("wait", err)
		}
	}
}

// copyFrom reads a file or folder of a container as a tar, and follows links. Codes: not_found.
func (d *daemon) copyFrom(ctx context.Context, id, path string) (io.ReadCloser, error) {
	body, _, err := d.api.CopyFromContainer(ctx, id, path)
	return body, failed("copy from container", err)
}

// demultiplex copies a container's attached stream to stdout and stderr until it ends.
func demultiplex(in io.Reader, stdout, stderr io.Writer) error {
	_, err := stdcopy.StdCopy(stdout, stderr, in)
	return err
}
