package dockerbackend

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
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

// This file, client_container.go and client_image.go are the only ones that import the Docker client: its successor module
// has the same shape, and the move stays small. Everything else speaks of daemon and the small types beside it.

// pingTime bounds the question whether a daemon is there.
const pingTime = 10 * time.Second

// daemon is a Docker daemon. All methods are safe for concurrent use; ctx bounds the request.
type daemon struct {
	api  *client.Client
	host string
}

// dial finds the daemon and asks it for its version of the API. host is Config.Host; empty: DOCKER_HOST, else the context
// of the docker command (DOCKER_CONTEXT, else the current one), else the default socket. Codes: invalid, unavailable.
func dial(ctx context.Context, host string) (*daemon, error) {
	options, err := clientOptions(host)
	if err != nil {
		return nil, err
	}
	api, err := client.NewClientWithOpts(options...)
	if err != nil {
		return nil, executor.Errorf(executor.Invalid, "docker client: %w", err)
	}
	d := &daemon{api: api, host: api.DaemonHost()}
	ctx, cancel := context.WithTimeoutCause(ctx, pingTime, fmt.Errorf("no answer within %s", pingTime))
	defer cancel()
	// NegotiateAPIVersion would swallow the error.
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
	at := environmentEndpoint(host, os.Getenv)
	if host == "" {
		var err error
		if at, err = currentContext(dockerFolder(), os.Getenv("DOCKER_CONTEXT")); err != nil {
			return nil, err
		}
	}
	if at.host == "" {
		return negotiate, nil
	}
	options, err := hostOptions(at)
	return append(options, negotiate...), err
}

// hostOptions understands ssh:// besides what the client does.
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
		// Before the host, which sets how this client dials.
		options = append(options, client.WithHTTPClient(&http.Client{Transport: &http.Transport{TLSClientConfig: secured}, CheckRedirect: client.CheckRedirect}))
	}
	return append(options, client.WithHost(at.host)), nil
}

// dockerFolder is where the docker command keeps its settings; empty without a home.
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

// close gives the idle connections back. Hijacked ones are their holders'.
func (d *daemon) close() error { return d.api.Close() }

// local reports whether the daemon runs on this machine, as far as its address tells.
func (d *daemon) local() bool { return strings.HasPrefix(d.host, "unix://") }

// apiVersion is what was agreed on, "1.41".
func (d *daemon) apiVersion() string { return d.api.ClientVersion() }

// daemonInfo is what a daemon says of itself and its machine.
type daemonInfo struct {
	ID, Version, Name, OS, Kernel, Driver, CgroupVersion string
	CPUs                                                 int
	MemoryBytes                                          int64
	// Memory, Swap, CPUShares, CPUQuota and PIDs: the kernel can limit them.
	Memory, Swap, CPUShares, CPUQuota, PIDs bool
	// Runtimes are those that may be named, in order, and RuntimeFacts what the daemon tells of them.
	Runtimes       []string
	RuntimeFacts   map[string]runtimeFacts
	DefaultRuntime string
	Security       []string
}

func (d *daemon) info(ctx context.Context) (daemonInfo, error) {
	i, err := d.api.Info(ctx)
	if err != nil {
		return daemonInfo{}, failed("info", err)
	}
	return readInfo(i), nil
}

// readInfo takes of a daemon's answer what we use. It is the same for either version of control groups: the daemon looks at
// its own, and says what it can limit.
func readInfo(i system.Info) daemonInfo {
	r := daemonInfo{
		ID: i.ID, Version: i.ServerVersion, Name: i.Name, OS: i.OperatingSystem, Kernel: i.KernelVersion, Driver: i.Driver, CgroupVersion: i.CgroupVersion,
		CPUs: i.NCPU, MemoryBytes: i.MemTotal, Memory: i.MemoryLimit, Swap: i.SwapLimit, CPUShares: i.CPUShares, CPUQuota: i.CPUCfsQuota,
		PIDs: i.PidsLimit, DefaultRuntime: i.DefaultRuntime, Security: i.SecurityOptions,
	}
	if r.CgroupVersion == "" {
		r.CgroupVersion = "1" // a daemon that knows no other
	}
	r.RuntimeFacts = make(map[string]runtimeFacts, len(i.Runtimes))
	for name, runtime := range i.Runtimes {
		r.Runtimes = append(r.Runtimes, name)
		r.RuntimeFacts[name] = runtimeFacts{Path: runtime.Path, Type: runtime.Type, Args: runtime.Args}
	}
	slices.Sort(r.Runtimes)
	return r
}

// ping reports whether the daemon answers.
func (d *daemon) ping(ctx context.Context) error {
	_, err := d.api.Ping(ctx)
	return failed("ping", err)
}

// failed translates an error of the daemon. Codes: not_found, conflict, invalid, unavailable.
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

// answered reports whether err is the daemon's answer, and not that there was none.
func answered(err error) bool {
	return !client.IsErrConnectionFailed(err) && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF)
}

// gone is err unless it says that what was to be removed is not there, or is being removed already.
func gone(err error) error {
	if code := executor.CodeOf(err); code == executor.NotFound || code == executor.Conflict && strings.Contains(err.Error(), "already in progress") {
		return nil
	}
	return err
}

// filter makes what lists only objects with these labels.
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

// volumeInfo is a volume of the daemon.
type volumeInfo struct {
	Name   string
	Labels map[string]string
	// Path is where it is on the daemon's machine; Created is zero if that is not known.
	Path    string
	Created time.Time
}

// createVolume makes a local volume; one that exists stays as it is, and is returned.
func (d *daemon) createVolume(ctx context.Context, name string, labels map[string]string) (volumeInfo, error) {
	v, err := d.api.VolumeCreate(ctx, volume.CreateOptions{Name: name, Driver: "local", Labels: labels})
	return infoOfVolume(v), failed("create volume", err)
}

func infoOfVolume(v volume.Volume) volumeInfo {
	created, _ := time.Parse(time.RFC3339, v.CreatedAt) // zero where there is none
	return volumeInfo{Name: v.Name, Labels: v.Labels, Path: v.Mountpoint, Created: created}
}

// removeVolume removes a volume. Codes: conflict (it is in use).
func (d *daemon) removeVolume(ctx context.Context, name string) error {
	return failed("remove volume", d.api.VolumeRemove(ctx, name, false))
}

// volumes lists those with all these labels.
func (d *daemon) volumes(ctx context.Context, labels map[string]string) ([]volumeInfo, error) {
	list, err := d.api.VolumeList(ctx, volume.ListOptions{Filters: filter(labels)})
	if err != nil {
		return nil, failed("list volumes", err)
	}
	var found []volumeInfo
	for _, v := range list.Volumes {
		found = append(found, infoOfVolume(*v))
	}
	return found, nil
}

// networkInfo is a network of the daemon.
type networkInfo struct {
	ID, Name, Driver string
	Labels           map[string]string
	// Bridge is the name of the interface on the daemon's machine, as it was asked for.
	Bridge  string
	Subnet  []string
	Created time.Time
}

const bridgeName = "com.docker.network.bridge.name"

// network finds a network by its name or id. Codes: not_found.
func (d *daemon) network(ctx context.Context, name string) (networkInfo, error) {
	n, err := d.api.NetworkInspect(ctx, name, network.InspectOptions{})
	if err != nil {
		return networkInfo{}, failed("inspect network", err)
	}
	return infoOfNetwork(n), nil
}

func infoOfNetwork(n network.Inspect) networkInfo {
	info := networkInfo{ID: n.ID, Name: n.Name, Driver: n.Driver, Labels: n.Labels, Bridge: n.Options[bridgeName], Created: n.Created}
	for _, c := range n.IPAM.Config {
		info.Subnet = append(info.Subnet, c.Subnet)
	}
	return info
}

// networks lists those with all these labels.
func (d *daemon) networks(ctx context.Context, labels map[string]string) ([]networkInfo, error) {
	list, err := d.api.NetworkList(ctx, network.ListOptions{Filters: filter(labels)})
	if err != nil {
		return nil, failed("list networks", err)
	}
	var found []networkInfo
	for _, n := range list {
		found = append(found, infoOfNetwork(n))
	}
	return found, nil
}

// createBridge makes a bridge on which containers do not reach each other. bridge is the name of its interface.
func (d *daemon) createBridge(ctx context.Context, name, bridge string, labels map[string]string) error {
	_, err := d.api.NetworkCreate(ctx, name, bridgeOptions(bridge, labels))
	return failed("create network", err)
}

// bridgeOptions are those of a network of ours. It has no IPv6, whatever the daemon's default is: what is blocked on it are
// addresses of IPv4.
func bridgeOptions(bridge string, labels map[string]string) network.CreateOptions {
	no := false
	return network.CreateOptions{
		Driver: "bridge", Labels: labels, EnableIPv6: &no,
		Options: map[string]string{bridgeName: bridge, "com.docker.network.bridge.enable_icc": "false"},
	}
}

// removeNetwork removes a network. Codes: conflict (containers are in it).
func (d *daemon) removeNetwork(ctx context.Context, name string) error {
	return failed("remove network", d.api.NetworkRemove(ctx, name))
}
