package wire

import (
	"context"
	"errors"
	"io"

	"google.golang.org/grpc"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/wire/internal/pb"
)

// Files cross in pieces of chunkBytes under gRPC's own flow control, so that neither side holds more than a few of them
// however large the file is.

// pieces reads what a stream carries.
type pieces struct {
	ctx  context.Context // of the call, to tell its end from the connection's
	next func() ([]byte, error)
	cut  context.CancelCauseFunc
	rest []byte
	err  error
}

// Read implements io.Reader.
func (p *pieces) Read(b []byte) (int, error) {
	for len(p.rest) == 0 && len(b) > 0 {
		if p.err != nil {
			return 0, p.err
		}
		data, err := p.next()
		switch {
		case errors.Is(err, io.EOF):
			p.err = io.EOF
		case err != nil:
			p.err = fromStatus(p.ctx, err)
		}
		p.rest = data
	}
	n := copy(b, p.rest)
	p.rest = p.rest[n:]
	return n, nil
}

// Close implements io.Closer.
func (p *pieces) Close() error {
	p.cut(nil)
	return nil
}

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

// fileMessage is what carries a piece of a file, whichever service it belongs to.
type fileMessage[M any] interface {
	*M
	GetPiece() *pb.FilePiece
}

// readFile calls ReadFile. The reader ends with ctx, too.
func readFile[M any, P fileMessage[M]](ctx context.Context, call func(context.Context) (grpc.ServerStreamingClient[M], error)) (executor.File, io.ReadCloser, error) {
	callCtx, cut := context.WithCancelCause(ctx)
	stream, err := call(outgoing(callCtx))
	var first *M
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
	return fromFile(P(first).GetPiece().GetFile()), &pieces{ctx: ctx, cut: cut, next: func() ([]byte, error) {
		m, err := stream.Recv()
		return P(m).GetPiece().GetData(), err
	}}, nil
}

// serveRead answers ReadFile.
func serveRead(ctx context.Context, files executor.SessionFiles, id, path string, send func(*pb.FilePiece) error) (err error) {
	file, rc, err := files.ReadFile(ctx, id, path)
	if err != nil {
		return err
	}
	defer func() {
		if closeErr := rc.Close(); err == nil {
			err = closeErr
		}
	}()
	if err := send(&pb.FilePiece{Part: &pb.FilePiece_File{File: toFile(file)}}); err != nil {
		return err
	}
	return inPieces(rc, func(data []byte) error {
		return send(&pb.FilePiece{Part: &pb.FilePiece_Data{Data: data}})
	})
}

// writeFile calls WriteFile. It reads r on the caller's goroutine, so that nobody reads it after the call.
func writeFile[Req, Resp any, P interface {
	*Resp
	GetFile() *pb.File
}](
	ctx context.Context,
	call func(context.Context, ...grpc.CallOption) (grpc.ClientStreamingClient[Req, Resp], error),
	message func(*pb.FilePiece) *Req, target *pb.FileTarget, r io.Reader,
) (executor.File, error) {
	callCtx, cut := context.WithCancelCause(ctx)
	defer cut(nil)
	stream, err := call(outgoing(callCtx))
	if err != nil {
		return executor.File{}, fromStatus(ctx, err)
	}
	// What Send fails with is only that the stream has ended; CloseAndRecv knows why.
	ended := errors.New("the stream has ended")
	send := func(p *pb.FilePiece) error {
		if stream.Send(message(p)) != nil {
			return ended
		}
		return nil
	}
	err = send(&pb.FilePiece{Part: &pb.FilePiece_Target{Target: target}})
	if err == nil {
		err = inPieces(r, func(data []byte) error { return send(&pb.FilePiece{Part: &pb.FilePiece_Data{Data: data}}) })
	}
	var unread error
	if !errors.Is(err, ended) {
		unread = err
		_ = send(&pb.FilePiece{Part: &pb.FilePiece_End{End: &pb.FileEnd{Error: toError(unread)}}})
	}
	resp, err := stream.CloseAndRecv()
	if unread != nil {
		return executor.File{}, unread // the other side has only its echo
	}
	if err != nil {
		return executor.File{}, fromStatus(ctx, err)
	}
	return fromFile(P(resp).GetFile()), nil
}

// serveWrite answers WriteFile.
func serveWrite(ctx context.Context, files executor.SessionFiles, next func() (*pb.FilePiece, error)) (executor.File, error) {
	first, err := next()
	if err != nil {
		return executor.File{}, err
	}
	target := first.GetTarget()
	if target == nil {
		return executor.File{}, executor.Errorf(executor.Invalid, "a file that is written begins with its target")
	}
	return files.WriteFile(ctx, target.GetId(), target.GetPath(), target.GetSizeBytes(), &upload{next: next})
}

// upload reads a file that the caller sends.
type upload struct {
	next func() (*pb.FilePiece, error)
	rest []byte
	err  error
}

// Read implements io.Reader. It is at its end only where the caller says so: a caller that goes away leaves no half file
// that looks whole.
func (u *upload) Read(b []byte) (int, error) {
	for len(u.rest) == 0 && len(b) > 0 {
		if u.err != nil {
			return 0, u.err
		}
		piece, err := u.next()
		switch part := piece.GetPart().(type) {
		case *pb.FilePiece_Data:
			u.rest = part.Data
		case *pb.FilePiece_End:
			if u.err = fromError(part.End.GetError()); u.err == nil {
				u.err = io.EOF
			}
		default:
			u.err = executor.ErrCallerGone
			if err == nil {
				u.err = executor.Errorf(executor.Invalid, "a piece of a file without data")
			}
		}
	}
	n := copy(b, u.rest)
	u.rest = u.rest[n:]
	return n, nil
}
