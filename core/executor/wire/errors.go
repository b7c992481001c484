package wire

import (
	"context"
	"errors"
	"slices"
	"strings"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/wire/internal/pb"
)

// errorDomain is the domain of the ErrorInfo that accompanies a status.
const errorDomain = "python-executor"

// maxStatusMessage bounds the text of a status, which travels as an HTTP/2 header. The detail has the whole text.
const maxStatusMessage = 1 << 10

// grpcCode maps each of our codes to a gRPC code of its own, so that a status without our details keeps its code.
func grpcCode(c executor.Code) codes.Code {
	switch c {
	case executor.Invalid:
		return codes.InvalidArgument
	case executor.NotFound:
		return codes.NotFound
	case executor.Conflict:
		return codes.FailedPrecondition
	case executor.Exhausted:
		return codes.ResourceExhausted
	case executor.Unavailable:
		return codes.Unavailable
	case executor.Unauthenticated:
		return codes.Unauthenticated
	case executor.Denied:
		return codes.PermissionDenied
	case executor.Unimplemented:
		return codes.Unimplemented
	case executor.Purged:
		return codes.OutOfRange
	case executor.Internal:
		return codes.Internal
	}
	return codes.Internal
}

// executorCode maps each gRPC code to one of ours, for a status without our details.
func executorCode(c codes.Code) executor.Code {
	switch c {
	case codes.OK:
		return ""
	case codes.InvalidArgument:
		return executor.Invalid
	case codes.NotFound:
		return executor.NotFound
	case codes.FailedPrecondition, codes.AlreadyExists, codes.Aborted:
		return executor.Conflict
	case codes.ResourceExhausted:
		return executor.Exhausted
	case codes.Unavailable, codes.Canceled, codes.DeadlineExceeded:
		return executor.Unavailable
	case codes.Unauthenticated:
		return executor.Unauthenticated
	case codes.PermissionDenied:
		return executor.Denied
	case codes.Unimplemented:
		return executor.Unimplemented
	case codes.OutOfRange:
		return executor.Purged
	case codes.Internal, codes.Unknown, codes.DataLoss:
		return executor.Internal
	}
	return executor.Internal
}

// knownCode returns c if it is in our closed list, else internal.
func knownCode(c executor.Code) executor.Code {
	if slices.Contains(executor.Codes(), c) {
		return c
	}
	return executor.Internal
}

// toError returns the message of err: the executor.Error without its cause. The text of the cause takes the place of an
// empty message. An Error that is wrapped keeps the words around it.
func toError(err error) *pb.Error {
	if err == nil {
		return nil
	}
	e, ok := errors.AsType[*executor.Error](err)
	if !ok {
		return &pb.Error{Code: string(executor.CodeOf(err)), Message: err.Error()}
	}
	out := &pb.Error{
		Code:        string(knownCode(e.Code)),
		Op:          e.Op,
		Message:     e.Message,
		ExecutionId: e.ExecutionID,
		RetryAfter:  toDuration(e.RetryAfter),
		Fields:      each(e.Fields, to[pb.FieldError]),
	}
	if error(e) != err { //nolint:errorlint // it asks whether err is wrapped
		out.Op, out.Message = "", err.Error()
	} else if e.Message == "" && e.Err != nil {
		out.Message = e.Err.Error()
	}
	return out
}

// fromError returns the error that e stands for; nil for nil.
func fromError(e *pb.Error) error {
	if e == nil {
		return nil
	}
	return &executor.Error{
		Code:        knownCode(executor.Code(e.Code)),
		Op:          e.Op,
		Message:     e.Message,
		ExecutionID: e.ExecutionId,
		RetryAfter:  e.RetryAfter.AsDuration(),
		Fields:      each(e.Fields, from[executor.FieldError]),
	}
}

// toStatus returns err as a gRPC status with details; nil for nil.
func toStatus(err error) error {
	if err == nil {
		return nil
	}
	detail := toError(err)
	text := strings.ToValidUTF8(err.Error(), "\uFFFD")
	if len(text) > maxStatusMessage {
		text = strings.ToValidUTF8(text[:maxStatusMessage], "") + "…"
	}
	st := status.New(grpcCode(executor.Code(detail.Code)), text)
	info := &errdetails.ErrorInfo{Reason: strings.ToUpper(detail.Code), Domain: errorDomain}
	if full, detailErr := st.WithDetails(info, detail); detailErr == nil {
		st = full
	}
	return st.Err()
}

// fromStatus returns the error that a call ended with. An executor.Error was made on this side and stays as it is. Else it
// is the Error in the status's details, or one whose code comes from the table. A lost connection is unavailable. When ctx
// has ended, the error is the cause of its end, as it would be without a wire. A cause without a code is unavailable.
func fromStatus(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*executor.Error](err); ok {
		return err
	}
	st, ok := status.FromError(err)
	if !ok {
		return executor.Errorf(executor.Unavailable, "connection: %w", err)
	}
	for _, d := range st.Details() {
		if e, ok := d.(*pb.Error); ok {
			return fromError(e)
		}
	}
	if ctx.Err() != nil && (st.Code() == codes.Canceled || st.Code() == codes.DeadlineExceeded) {
		if cause := context.Cause(ctx); executor.CodeOf(cause) != executor.Internal {
			return cause
		}
		return executor.Errorf(executor.Unavailable, "%w", context.Cause(ctx))
	}
	for _, d := range st.Details() {
		info, ok := d.(*errdetails.ErrorInfo)
		if ok && info.GetDomain() == errorDomain {
			return &executor.Error{Code: knownCode(executor.Code(strings.ToLower(info.GetReason()))), Message: st.Message()}
		}
	}
	return &executor.Error{Code: executorCode(st.Code()), Message: st.Message()}
}
