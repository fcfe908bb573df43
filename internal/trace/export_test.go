package trace

import "net/http"

// WithClient returns o with the client that sends spans.
func WithClient(o Options, c *http.Client) Options {
	o.client = c
	return o
}
