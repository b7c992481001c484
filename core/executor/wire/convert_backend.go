package wire

import (
	"archive/tar"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/wire/internal/pb"
)

func toInfo(i executor.Info) *pb.Info {
	return &pb.Info{
		Name:         i.Name,
		Type:         i.Type,
		Version:      i.Version,
		Generation:   int64(i.Generation),
		Healthy:      i.Healthy,
		Message:      i.Message,
		Capacity:     int64(i.Capacity),
		Capabilities: toCapabilities(i.Capabilities),
		Images:       i.Images,
		Warnings:     i.Warnings,
		Details:      i.Details,
		Metrics:      i.Metrics,
	}
}

func fromInfo(i *pb.Info) executor.Info {
	if i == nil {
		return executor.Info{}
	}
	return executor.Info{
		Name:         i.Name,
		Type:         i.Type,
		Version:      i.Version,
		Generation:   int(i.Generation),
		Healthy:      i.Healthy,
		Message:      i.Message,
		Capacity:     int(i.Capacity),
		Capabilities: fromCapabilities(i.Capabilities),
		Images:       i.Images,
		Warnings:     i.Warnings,
		Details:      i.Details,
		Metrics:      i.Metrics,
	}
}

func toCapabilities(c executor.Capabilities) *pb.Capabilities {
	return &pb.Capabilities{
		Isolation:         string(c.Isolation),
		NetworkOff:        c.NetworkOff,
		NetworkOn:         c.NetworkOn,
		Memory:            c.Memory,
		Disk:              c.Disk,
		Cpu:               c.CPU,
		Pids:              c.PIDs,
		Commands:          c.Commands,
		Requirements:      c.Requirements,
		Images:            c.Images,
		PreCommands:       c.PreCommands,
		Artifacts:         c.Artifacts,
		MemorySamples:     c.MemorySamples,
		SystemInterpreter: c.SystemInterpreter,
		HostDirectories:   c.HostDirectories,
		Scripts:           c.Scripts,
		Sessions:          c.Sessions,
		Attach:            c.Attach,
		LocalPath:         c.LocalPath,
		Languages:         words[string](c.Languages),
		PythonVersions:    c.PythonVersions,
	}
}

func fromCapabilities(c *pb.Capabilities) executor.Capabilities {
	if c == nil {
		return executor.Capabilities{}
	}
	return executor.Capabilities{
		Isolation:         executor.Isolation(c.Isolation),
		NetworkOff:        c.NetworkOff,
		NetworkOn:         c.NetworkOn,
		Memory:            c.Memory,
		Disk:              c.Disk,
		CPU:               c.Cpu,
		PIDs:              c.Pids,
		Commands:          c.Commands,
		Requirements:      c.Requirements,
		Images:            c.Images,
		PreCommands:       c.PreCommands,
		Artifacts:         c.Artifacts,
		MemorySamples:     c.MemorySamples,
		SystemInterpreter: c.SystemInterpreter,
		HostDirectories:   c.HostDirectories,
		Scripts:           c.Scripts,
		Sessions:          c.Sessions,
		Attach:            c.Attach,
		LocalPath:         c.LocalPath,
		Languages:         words[executor.Language](c.Languages),
		PythonVersions:    c.PythonVersions,
	}
}

// toJob leaves the Sources out: source.go carries them.
func toJob(j executor.Job) *pb.Job {
	return &pb.Job{
		Id:      j.ID,
		Owner:   j.Owner,
		Attempt: int64(j.Attempt),
		Spec:    toSpec(j.Spec),
		Limits:  toLimits(j.Limits),
	}
}

func fromJob(j *pb.Job) executor.Job {
	return executor.Job{
		ID:      j.GetId(),
		Owner:   j.GetOwner(),
		Attempt: int(j.GetAttempt()),
		Spec:    fromSpec(j.GetSpec()),
		Limits:  fromLimits(j.GetLimits()),
	}
}

func toResume(r executor.Resume) *pb.Resume {
	return &pb.Resume{Handle: r.Handle, Stdout: r.Stdout, Stderr: r.Stderr}
}

func fromResume(r *pb.Resume) executor.Resume {
	return executor.Resume{Handle: r.GetHandle(), Stdout: r.GetStdout(), Stderr: r.GetStderr()}
}

// toHeader carries every field but the deprecated Xattrs, which are PAXRecords by another name.
func toHeader(h *tar.Header) *pb.ArtifactBegin {
	return &pb.ArtifactBegin{
		Typeflag:   int64(h.Typeflag),
		Name:       h.Name,
		Linkname:   h.Linkname,
		Size:       h.Size,
		Mode:       h.Mode,
		Uid:        int64(h.Uid),
		Gid:        int64(h.Gid),
		Uname:      h.Uname,
		Gname:      h.Gname,
		ModTime:    toTime(h.ModTime),
		AccessTime: toTime(h.AccessTime),
		ChangeTime: toTime(h.ChangeTime),
		Devmajor:   h.Devmajor,
		Devminor:   h.Devminor,
		PaxRecords: h.PAXRecords,
		Format:     int64(h.Format),
	}
}

func fromHeader(h *pb.ArtifactBegin) *tar.Header {
	return &tar.Header{
		Typeflag:   byte(h.GetTypeflag() & 0xff),
		Name:       h.GetName(),
		Linkname:   h.GetLinkname(),
		Size:       h.GetSize(),
		Mode:       h.GetMode(),
		Uid:        int(h.GetUid()),
		Gid:        int(h.GetGid()),
		Uname:      h.GetUname(),
		Gname:      h.GetGname(),
		ModTime:    fromTime(h.GetModTime()),
		AccessTime: fromTime(h.GetAccessTime()),
		ChangeTime: fromTime(h.GetChangeTime()),
		Devmajor:   h.GetDevmajor(),
		Devminor:   h.GetDevminor(),
		PAXRecords: h.GetPaxRecords(),
		Format:     tar.Format(h.GetFormat()),
	}
}
