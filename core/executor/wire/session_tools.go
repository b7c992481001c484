package wire

import (
	"context"
	"errors"
	"io"

	"google.golang.org/grpc"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/wire/internal/pb"
)

// Files cross in pieces of chunkBytes under gRPC's flow control. Neither side holds more than a few pieces.

// pieces reads the pieces of a stream. next returns the next piece, or io.EOF behind the last.
type pieces struct {
	next func() ([]byte, error)
	rest []byte
	err  error
}

// Read implements io.Reader.
func (p *pieces) Read(b []byte) (int, error) {
	for len(p.rest) == 0 && len(b) > 0 {
		if p.err != nil {
			return 0, p.err
		}
		p.rest, p.err = p.next()
	}
	n := copy(b, p.rest)
	p.rest = p.rest[n:]
	return n, nil
}

// endOf returns what a reader returns at the end that its sender announces with e.
func endOf(e *pb.Error) error {
	if err := fromError(e); err != nil {
		return err
	}
	return io.EOF
}

// download reads what the answer to a call has.
type download struct {
	pieces
	cut context.CancelCauseFunc
}

// newDownload reads the messages of recv. ctx is the caller's, to tell its end from the connection's.
func newDownload[M interface{ GetData() []byte }](ctx context.Context, cut context.CancelCauseFunc, recv func() (M, error)) *download {
	return &download{cut: cut, pieces: pieces{next: func() ([]byte, error) {
		m, err := recv()
		if err != nil && !errors.Is(err, io.EOF) {
			err = fromStatus(ctx, err)
		}
		return m.GetData(), err
	}}}
}

// Close implements io.Closer.
func (d *download) Close() error {
	d.cut(nil)
	return nil
}

// errStreamEnded stops inPieces where the other side takes no more. The stream knows why.
var errStreamEnded = errors.New("the stream has ended")

// inPieces sends r to its end.
func inPieces(r io.Reader, send func([]byte) error) error {
	buf := make([]byte, chunkBytes)
	for {
		n, err := io.ReadFull(r, buf)
		if n > 0 {
			// gRPC has copied the bytes when this returns, so buf is free again.
			if err := send(buf[:n]); err != nil {
				return err
			}
		}
		if err == io.EOF || err == io.ErrUnexpectedEOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// sessionTools is what a Service and a SessionBackend have in common.
type sessionTools interface {
	executor.SessionTools
	executor.SessionFiles
}

// sessionToolsClient is the caller's side of sessionTools.
type sessionToolsClient struct {
	tools pb.SessionToolsServiceClient
}

var _ sessionTools = sessionToolsClient{}

// Variables implements executor.SessionTools.
func (c sessionToolsClient) Variables(ctx context.Context, id string) ([]executor.Variable, error) {
	resp, err := c.tools.Variables(outgoing(ctx), &pb.VariablesRequest{Id: id})
	return each(resp.GetVariables(), from[executor.Variable]), fromStatus(ctx, err)
}

// AddRequirements implements executor.SessionTools.
func (c sessionToolsClient) AddRequirements(ctx context.Context, id, requirements string) ([]string, error) {
	resp, err := c.tools.AddRequirements(outgoing(ctx), &pb.AddRequirementsRequest{Id: id, Requirements: requirements})
	return resp.GetRequirements(), fromStatus(ctx, err)
}

// ListFiles implements executor.SessionFiles.
func (c sessionToolsClient) ListFiles(ctx context.Context, id, path string, recursive bool) ([]executor.File, error) {
	resp, err := c.tools.ListFiles(outgoing(ctx), &pb.ListFilesRequest{Id: id, Path: path, Recursive: recursive})
	return each(resp.GetFiles(), from[executor.File]), fromStatus(ctx, err)
}

// ReadFile implements executor.SessionFiles. The end of ctx ends the reader.
func (c sessionToolsClient) ReadFile(ctx context.Context, id, path string) (executor.File, io.ReadCloser, error) {
	callCtx, cut := context.WithCancelCause(ctx)
	stream, err := c.tools.ReadFile(outgoing(callCtx), &pb.ReadFileRequest{Id: id, Path: path})
	var first *pb.ReadFileResponse
	if err == nil {
		first, err = stream.Recv()
	}
	if err != nil {
		cut(nil)
		if errors.Is(err, io.EOF) {
			return executor.File{}, nil, executor.Errorf(executor.Internal, "the other side ended without saying what the file is")
		}
		return executor.File{}, nil, fromStatus(ctx, err)
	}
	return from[executor.File](first.GetFile()), newDownload(ctx, cut, stream.Recv), nil
}

// WriteFile implements executor.SessionFiles. It reads r on the caller's goroutine, so that r is not read after the call.
func (c sessionToolsClient) WriteFile(ctx context.Context, id string, file executor.File, r io.Reader) (executor.File, error) {
	callCtx, cut := context.WithCancelCause(ctx)
	defer cut(nil)
	stream, err := c.tools.WriteFile(outgoing(callCtx))
	if err != nil {
		return executor.File{}, fromStatus(ctx, err)
	}
	send := func(m *pb.WriteFileRequest) error {
		if stream.Send(m) != nil {
			return errStreamEnded // CloseAndRecv returns why
		}
		return nil
	}
	err = send(&pb.WriteFileRequest{Message: &pb.WriteFileRequest_Target{Target: &pb.FileTarget{
		Id: id, Path: file.Path, SizeBytes: file.SizeBytes, Mode: file.Mode, Directory: file.Directory,
	}}})
	if err == nil && !file.Directory {
		err = inPieces(r, func(data []byte) error {
			return send(&pb.WriteFileRequest{Message: &pb.WriteFileRequest_Data{Data: data}})
		})
	}
	var unread error
	if !errors.Is(err, errStreamEnded) {
		unread = err
		_ = send(&pb.WriteFileRequest{Message: &pb.WriteFileRequest_End{End: &pb.FileEnd{Error: toError(unread)}}})
	}
	resp, err := stream.CloseAndRecv()
	if unread != nil {
		return executor.File{}, unread // the other side returns a copy of it
	}
	return from[executor.File](resp.GetFile()), fromStatus(ctx, err)
}

// RemoveFile implements executor.SessionFiles.
func (c sessionToolsClient) RemoveFile(ctx context.Context, id, path string) error {
	_, err := c.tools.RemoveFile(outgoing(ctx), &pb.RemoveFileRequest{Id: id, Path: path})
	return fromStatus(ctx, err)
}

// sessionToolsServer is the other side.
type sessionToolsServer struct {
	pb.UnimplementedSessionToolsServiceServer
	tools sessionTools
}

// Variables implements pb.SessionToolsServiceServer.
func (s *sessionToolsServer) Variables(ctx context.Context, r *pb.VariablesRequest) (*pb.VariablesResponse, error) {
	got, err := s.tools.Variables(ctx, r.GetId())
	return &pb.VariablesResponse{Variables: each(got, to[pb.Variable])}, err
}

// AddRequirements implements pb.SessionToolsServiceServer.
func (s *sessionToolsServer) AddRequirements(ctx context.Context, r *pb.AddRequirementsRequest) (*pb.AddRequirementsResponse, error) {
	got, err := s.tools.AddRequirements(ctx, r.GetId(), r.GetRequirements())
	return &pb.AddRequirementsResponse{Requirements: got}, err
}

// ListFiles implements pb.SessionToolsServiceServer.
func (s *sessionToolsServer) ListFiles(ctx context.Context, r *pb.ListFilesRequest) (*pb.ListFilesResponse, error) {
	got, err := s.tools.ListFiles(ctx, r.GetId(), r.GetPath(), r.GetRecursive())
	return &pb.ListFilesResponse{Files: each(got, to[pb.File])}, err
}

// ReadFile implements pb.SessionToolsServiceServer.
func (s *sessionToolsServer) ReadFile(r *pb.ReadFileRequest, stream grpc.ServerStreamingServer[pb.ReadFileResponse]) (err error) {
	file, rc, err := s.tools.ReadFile(stream.Context(), r.GetId(), r.GetPath())
	if err != nil {
		return err
	}
	defer func() {
		if closeErr := rc.Close(); err == nil {
			err = closeErr
		}
	}()
	if err := stream.Send(&pb.ReadFileResponse{Message: &pb.ReadFileResponse_File{File: to[pb.File](file)}}); err != nil {
		return err
	}
	return inPieces(rc, func(data []byte) error {
		return stream.Send(&pb.ReadFileResponse{Message: &pb.ReadFileResponse_Data{Data: data}})
	})
}

// WriteFile implements pb.SessionToolsServiceServer.
func (s *sessionToolsServer) WriteFile(stream grpc.ClientStreamingServer[pb.WriteFileRequest, pb.WriteFileResponse]) error {
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	target := first.GetTarget()
	if target == nil {
		return executor.Errorf(executor.Invalid, "a file that is written must begin with its target")
	}
	var content io.Reader
	if !target.GetDirectory() {
		content = &pieces{next: func() ([]byte, error) { return nextPiece(stream) }}
	}
	file, err := s.tools.WriteFile(stream.Context(), target.GetId(), executor.File{
		Path: target.GetPath(), SizeBytes: target.GetSizeBytes(), Mode: target.GetMode(), Directory: target.GetDirectory(),
	}, content)
	if err != nil {
		return err
	}
	return stream.SendAndClose(&pb.WriteFileResponse{File: to[pb.File](file)})
}

// RemoveFile implements pb.SessionToolsServiceServer.
func (s *sessionToolsServer) RemoveFile(ctx context.Context, r *pb.RemoveFileRequest) (*pb.RemoveFileResponse, error) {
	return &pb.RemoveFileResponse{}, s.tools.RemoveFile(ctx, r.GetId(), r.GetPath())
}

// nextPiece returns the next piece of a file that the caller sends. The file is at its end only where the caller says so: a
// caller that goes away leaves no half file that looks whole.
func nextPiece(stream grpc.ClientStreamingServer[pb.WriteFileRequest, pb.WriteFileResponse]) ([]byte, error) {
	m, err := stream.Recv()
	if err != nil {
		return nil, executor.ErrCallerGone
	}
	switch message := m.GetMessage().(type) {
	case *pb.WriteFileRequest_Data:
		return message.Data, nil
	case *pb.WriteFileRequest_End:
		return nil, endOf(message.End.GetError())
	default:
		return nil, executor.Errorf(executor.Invalid, "a piece of a file must have data or an end")
	}
}
