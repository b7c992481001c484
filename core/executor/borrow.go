package executor

import "context"

type borrowKey struct{}

// WithBorrowedData returns a ctx for Events whose caller is done with the Data of an Output when it asks for the next Event. The
// Data of all Outputs may then share one buffer. It does not cross a process boundary.
func WithBorrowedData(ctx context.Context) context.Context {
	return context.WithValue(ctx, borrowKey{}, true)
}

// DataIsBorrowed reports whether ctx comes from WithBorrowedData.
func DataIsBorrowed(ctx context.Context) bool {
	borrowed, _ := ctx.Value(borrowKey{}).(bool)
	return borrowed
}
