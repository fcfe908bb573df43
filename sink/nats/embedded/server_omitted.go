//go:build noembedded

package embedded

// Built reports whether the program contains the server.
const Built = false

// Server is never running.
type Server struct{}

// Start returns [ErrNotBuilt].
func Start(Config) (*Server, error) { return nil, ErrNotBuilt }

// URL returns an empty string.
func (*Server) URL() string { return "" }

// Close does nothing.
func (*Server) Close() {}
