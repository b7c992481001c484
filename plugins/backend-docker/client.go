package dockerbackend

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/cli/cli/connhelper"
	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/api/types/network"
	"github.com/docker/docker/api/types/system"
	"github.com/docker/docker/api/types/volume"
	"github.com/docker/docker/client"

	"github.com/python-executor/python-executor/core/executor"
)

// Only this file, client_container.go and client_image.go import the Docker client. Its successor module has the same
// structure, so only these files will change. All other files use daemon and the types here.

// pingTime bounds the first request to a daemon.
const pingTime = 10 * time.Second

// noDaemon is what to do if no daemon answers.
const noDaemon = "start Docker, set backends.docker.host or DOCKER_HOST, give this user access to Docker by the group docker, or use another backend, such as uv"

// daemon is a Docker daemon. Its methods are safe for concurrent use. ctx bounds the request.
type daemon struct {
	api  *client.Client
	host string
	// late bounds the wait of end for a late out-of-memory event.
	late time.Duration
}

// dial connects to the daemon and negotiates the version of the API. host is Config.Host. If it is empty, dial uses
// DOCKER_HOST, else the context of the docker command (DOCKER_CONTEXT, else the current one), else the default socket. Codes:
// invalid, unavailable.
func dial(ctx context.Context, host string) (*daemon, error) {
	options, err := clientOptions(host)
	if err != nil {
		return nil, err
	}
	api, err := client.NewClientWithOpts(options...)
	if err != nil {
		return nil, executor.Errorf(executor.Invalid, "docker client: %w", err)
	}
	d := &daemon{api: api, host: api.DaemonHost(), late: lateTime}
	ctx, cancel := context.WithTimeoutCause(ctx, pingTime, fmt.Errorf("no answer within %s", pingTime))
	defer cancel()
	// NegotiateAPIVersion would drop the error.
	ping, err := api.Ping(ctx)
	if err != nil {
		return nil, errors.Join(executor.Errorf(executor.Unavailable, "docker at %s: %w", d.host, err), api.Close())
	}
	api.NegotiateAPIVersionPing(ping)
	return d, nil
}

func clientOptions(host string) ([]client.Opt, error) {
	negotiate := []client.Opt{client.WithVersionFromEnv(), client.WithAPIVersionNegotiation()}
	if host == "" {
		host = os.Getenv(client.EnvOverrideHost)
	}
	at, err := environmentEndpoint(host, os.Getenv)
	if host == "" {
		at, err = currentContext(dockerFolder(), os.Getenv("DOCKER_CONTEXT"))
	}
	if err != nil || at.host == "" {
		return negotiate, err
	}
	options, err := hostOptions(at)
	return append(options, negotiate...), err
}

// hostOptions returns the client's options for a host. It adds ssh:// to the schemes that the client supports.
func hostOptions(at endpoint) ([]client.Opt, error) {
	helper, err := connhelper.GetConnectionHelper(at.host)
	if err != nil {
		return nil, executor.Errorf(executor.Invalid, "docker host: %w", err)
	}
	if helper != nil {
		return []client.Opt{
			client.WithHTTPClient(&http.Client{Transport: &http.Transport{DialContext: helper.Dialer}}),
			client.WithHost(helper.Host), client.WithDialContext(helper.Dialer),
		}, nil
	}
	var options []client.Opt
	if secured, err := at.tls(); err != nil {
		return nil, err
	} else if secured != nil {
		// The HTTP client comes before the host, because WithHost configures how the client dials.
		options = append(options, client.WithHTTPClient(&http.Client{Transport: &http.Transport{TLSClientConfig: secured}, CheckRedirect: client.CheckRedirect}))
	}
	return append(options, client.WithHost(at.host)), nil
}

// dockerFolder returns the folder of the docker command's settings; empty if there is no home folder.
func dockerFolder() string {
	if dir := os.Getenv("DOCKER_CONFIG"); dir != "" {
		return dir
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return ""
	}
	return filepath.Join(home, ".docker")
}

// close closes idle connections. Those that attach has returned stay open, and their holders close them.
func (d *daemon) close() error { return d.api.Close() }

// local reports whether the daemon runs on this machine. It is so if its address is a Unix socket.
func (d *daemon) local() bool { return strings.HasPrefix(d.host, "unix://") }

// apiVersion returns the negotiated version of the API, "1.41".
func (d *daemon) apiVersion() string { return d.api.ClientVersion() }

// daemonInfo describes a daemon and its machine.
type daemonInfo struct{ system.Info }

func (d *daemon) info(ctx context.Context) (daemonInfo, error) {
	i, err := d.api.Info(ctx)
	return readInfo(i), failed("info", err)
}

// readInfo completes a daemon's answer. What the daemon can limit it says in the same way for both versions of control groups.
func readInfo(i system.Info) daemonInfo {
	i.CgroupVersion = cmp.Or(i.CgroupVersion, "1") // an old daemon supports only version 1
	return daemonInfo{i}
}

// ping returns an error if the daemon does not answer.
func (d *daemon) ping(ctx context.Context) error {
	_, err := d.api.Ping(ctx)
	return failed("ping", err)
}

// failed converts an error of the daemon. what names the request. Codes: not_found, conflict, invalid, unavailable.
func failed(what string, err error) error {
	switch {
	case err == nil:
		return nil
	case errdefs.IsNotFound(err):
		return executor.Errorf(executor.NotFound, "docker %s: %w", what, err)
	case errdefs.IsConflict(err):
		return executor.Errorf(executor.Conflict, "docker %s: %w", what, err)
	case errdefs.IsInvalidArgument(err):
		return executor.Errorf(executor.Invalid, "docker %s: %w", what, err)
	}
	return executor.Errorf(executor.Unavailable, "docker %s: %w", what, err)
}

// answered reports whether err is an answer of the daemon, not a broken connection.
func answered(err error) bool {
	return !client.IsErrConnectionFailed(err) && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF)
}

// gone returns err, or nil if err says that the object to remove does not exist or is being removed.
func gone(err error) error {
	if code := executor.CodeOf(err); code == executor.NotFound || code == executor.Conflict && strings.Contains(err.Error(), "already in progress") {
		return nil
	}
	return err
}

// filter returns a filter of objects with all these labels. An empty value matches any value.
func filter(labels map[string]string) filters.Args {
	args := filters.NewArgs()
	for k, v := range labels {
		if v == "" {
			args.Add("label", k)
		} else {
			args.Add("label", k+"="+v)
		}
	}
	return args
}

// object is a volume or a network of the daemon.
type object struct {
	Name   string
	Labels map[string]string
	// Created is zero if unknown.
	Created time.Time
	// Path is a volume's folder on the daemon's machine.
	Path string
}

// createVolume creates and returns a local volume. If it exists, it is returned unchanged.
func (d *daemon) createVolume(ctx context.Context, name string, labels map[string]string) (object, error) {
	v, err := d.api.VolumeCreate(ctx, volume.CreateOptions{Name: name, Driver: "local", Labels: labels})
	return volumeObject(v), failed("create volume", err)
}

func volumeObject(v volume.Volume) object {
	created, _ := time.Parse(time.RFC3339, v.CreatedAt) // zero without a valid time
	return object{Name: v.Name, Labels: v.Labels, Path: v.Mountpoint, Created: created}
}

// removeVolume removes a volume. Codes: conflict (it is in use).
func (d *daemon) removeVolume(ctx context.Context, name string) error {
	return failed("remove volume", d.api.VolumeRemove(ctx, name, false))
}

// volumes lists the volumes with all these labels.
func (d *daemon) volumes(ctx context.Context, labels map[string]string) ([]object, error) {
	list, err := d.api.VolumeList(ctx, volume.ListOptions{Filters: filter(labels)})
	if err != nil {
		return nil, failed("list volumes", err)
	}
	var found []object
	for _, v := range list.Volumes {
		found = append(found, volumeObject(*v))
	}
	return found, nil
}

// findNetwork returns an error if there is no network with this name or id. Codes: not_found.
func (d *daemon) findNetwork(ctx context.Context, name string) error {
	_, err := d.api.NetworkInspect(ctx, name, network.InspectOptions{})
	return failed("inspect network", err)
}

// networks lists the networks with all these labels.
func (d *daemon) networks(ctx context.Context, labels map[string]string) ([]object, error) {
	list, err := d.api.NetworkList(ctx, network.ListOptions{Filters: filter(labels)})
	if err != nil {
		return nil, failed("list networks", err)
	}
	var found []object
	for _, n := range list {
		found = append(found, object{Name: n.Name, Labels: n.Labels, Created: n.Created})
	}
	return found, nil
}

// createBridge creates a bridge on which containers cannot reach each other. bridge is the name of its interface.
func (d *daemon) createBridge(ctx context.Context, name, bridge string, labels map[string]string) error {
	_, err := d.api.NetworkCreate(ctx, name, bridgeOptions(bridge, labels))
	return failed("create network", err)
}

// bridgeOptions returns the options of this backend's bridge. IPv6 is off, against the daemon's default, because only IPv4
// addresses are blocked.
func bridgeOptions(bridge string, labels map[string]string) network.CreateOptions {
	no := false
	return network.CreateOptions{
		Driver: "bridge", Labels: labels, EnableIPv6: &no,
		Options: map[string]string{"com.docker.network.bridge.name": bridge, "com.docker.network.bridge.enable_icc": "false"},
	}
}

// removeNetwork removes a network. Codes: conflict (containers are in it).
func (d *daemon) removeNetwork(ctx context.Context, name string) error {
	return failed("remove network", d.api.NetworkRemove(ctx, name))
}
