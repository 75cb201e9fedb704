package v1

import "context"

// Call sends a request to any route and reads the answer.
func Call[Out any](ctx context.Context, c *Client, method, path string, in any) (Out, error) {
	return call[Out](ctx, c, method, path, in)
}
