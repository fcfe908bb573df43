package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/feedbridge/feedbridge/config"
	"github.com/feedbridge/feedbridge/internal/admin/status"
	"github.com/feedbridge/feedbridge/internal/credential"
)

// adminFlags are the flags of a command that talks to a running daemon.
type adminFlags struct{ url, tokenFile string }

// addAdminFlags makes a command one that talks to a running daemon, which it finds by the
// configuration or by the flag --admin.
func (a *app) addAdminFlags(cmd *cobra.Command) *cobra.Command {
	a.configurable(cmd)
	cmd.Flags().StringVar(&a.admin.url, "admin", "", "the `URL` of the daemon's admin server, such as http://127.0.0.1:9321\nor unix:/run/feedbridge.sock; default: as configured")
	cmd.Flags().StringVar(&a.admin.tokenFile, "token-file", "", "a `FILE` with the token for changes; default: as configured")
	_ = cmd.MarkFlagFilename("token-file") // the flag is there
	return cmd
}

// adminClient sends requests to the admin server of a running daemon.
type adminClient struct {
	// at is the address for people: a URL, or unix: and a path.
	at   string
	base string
	// found names the daemon that answers, if nobody has named one; else it is empty.
	found string
	// hint is what to do if the daemon refuses a change.
	hint  string
	token credential.Secret
	http  *http.Client
}

// largestAnswer is the most bytes that are read of an answer. A status of 10,000 feeds has 20 MB.
const largestAnswer = 256 << 20

// openAdmin returns a client for the daemon that the flags or the configuration name.
//
// If there is a socket beside an address, it uses the socket, which needs no token. One that is not
// configured has to answer. At an address or a socket that another daemon on this machine may have by
// default, it asks for the configuration file, and returns an error if that is another one.
func (a *app) openAdmin() (*adminClient, error) {
	a.fileless = a.file == "" && a.admin.url == ""
	cfg, err := config.LoadAdmin(config.Options{File: a.file, Environ: a.environ, Set: a.set})
	if err != nil && a.admin.url == "" {
		return nil, err
	}
	if a.admin.tokenFile != "" {
		cfg.Token = credential.Secret("file:" + a.admin.tokenFile)
	}
	token, err := cfg.ReadToken()
	if err != nil {
		return nil, err
	}
	at, hint := a.admin.url, ""
	host, _, _ := net.SplitHostPort(cfg.Listen)
	shared := at == "" && cfg.Socket == "" && (host == "localhost" || net.ParseIP(host).IsLoopback())
	if at == "" && cfg.Socket == "" {
		cfg.Socket, hint = answeringSocket(cfg)
	}
	if at == "" {
		if at, err = adminURL(cfg); err != nil {
			return nil, err
		}
	}
	client, err := newAdminClient(at, token)
	if err == nil {
		client.hint = hint
		if shared {
			err = client.checkConfig(a.file)
		}
	}
	return client, err
}

// checkConfig returns an error if a daemon with another configuration than file answers. Without a file it sets found.
func (c *adminClient) checkConfig(file string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodHead, c.base+"/healthz", nil)
	if err != nil {
		return err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil //nolint:nilerr // the command's own request reports it
	}
	_ = resp.Body.Close()
	theirs := resp.Header.Values(status.ConfigHeader)
	if len(theirs) == 0 {
		return nil // no feedbridge, which the command's own request reports
	}
	other := "without a file"
	if theirs[0] != "" {
		other = "with " + theirs[0]
	}
	own, err := os.Stat(file)
	info, otherErr := os.Stat(theirs[0])
	switch {
	case file == "":
		c.found = fmt.Sprintf("the daemon at %s, which runs %s", c.at, other)
		return nil
	case err == nil && otherErr == nil && os.SameFile(own, info):
		return nil
	}
	return fmt.Errorf("the daemon of %s does not run; at %s another one answers, %s; --admin %[2]s asks that one", file, c.at, other)
}

// reportFound writes which daemon answers if nobody has named one.
func (a *app) reportFound(c *adminClient) {
	if c.found != "" {
		fmt.Fprintf(a.err, "No -c or --admin was given: asking %s\n", a.redact.Clip(c.found, longestError))
	}
}

// answeringSocket returns the first default socket that answers, or one if there is no other address. If only
// another user may use one, the hint has the cure.
func answeringSocket(cfg config.Admin) (path, hint string) {
	for _, path := range cfg.DefaultSockets {
		conn, err := (&net.Dialer{Timeout: time.Second}).DialContext(context.Background(), "unix", path)
		if err == nil {
			_ = conn.Close()
			return path, ""
		}
		if errors.Is(err, fs.ErrPermission) {
			hint = fmt.Sprintf("; the user of the daemon may change it by the socket %s: run this command as that user (sudo -u)", path)
		}
	}
	if _, port, err := net.SplitHostPort(cfg.Listen); len(cfg.DefaultSockets) > 0 && (err != nil || port == "0") {
		return cfg.DefaultSockets[0], hint
	}
	return "", hint
}

// adminURL returns the URL of the configured admin server.
func adminURL(cfg config.Admin) (string, error) {
	if cfg.Socket != "" {
		return "unix:" + cfg.Socket, nil
	}
	host, port, err := net.SplitHostPort(cfg.Listen)
	switch {
	case cfg.Listen == "":
		return "", &usageError{errors.New("admin.listen is off and there is no admin.socket, so a daemon with this configuration cannot be reached; set one of them")}
	case err == nil && port == "0":
		return "", &usageError{errors.New("the port in admin.listen is 0, which any free one replaces; name the address with --admin")}
	}
	// The daemon listens on all addresses, of which this is one.
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return "http://" + net.JoinHostPort(host, port), nil
}

func newAdminClient(at string, token credential.Secret) (*adminClient, error) {
	dialer := &net.Dialer{Timeout: 5 * time.Second}
	transport := &http.Transport{ResponseHeaderTimeout: 6 * time.Minute, DialContext: dialer.DialContext}
	c := &adminClient{at: at, base: strings.TrimSuffix(at, "/"), token: token, http: &http.Client{
		Transport: transport,
		// The token is for this server only.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
	u, err := url.Parse(at)
	switch {
	case err == nil && u.Scheme == "unix":
		path := cmp.Or(u.Path, u.Opaque) // the latter if it is relative
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return dialer.DialContext(ctx, "unix", path)
		}
		c.base = "http://localhost"
	case err != nil, u.Scheme != "http" && u.Scheme != "https", u.Host == "":
		return nil, &usageError{fmt.Errorf("invalid --admin %q: want a URL such as http://127.0.0.1:9321 or unix:/run/feedbridge.sock", at)}
	}
	return c, nil
}

// mayChange reports whether the daemon may accept changes: a token is known, or the address is
// a socket.
func (c *adminClient) mayChange() bool {
	return c.token != "" || strings.HasPrefix(c.at, "unix:")
}

// answerTime is how long a daemon may take to say how it is. One that is frozen accepts connections and never answers.
const answerTime = 10 * time.Second

// get decodes the JSON at a path into answer. The path begins with a slash.
func (c *adminClient) get(ctx context.Context, path string, answer any) error {
	return c.do(ctx, http.MethodGet, path, answer)
}

// post requests a change and decodes the answer. After an error nothing was changed, unless
// the connection was lost, or the bus did not acknowledge a pause or its end. All changes can be
// repeated.
func (c *adminClient) post(ctx context.Context, path string, answer any) error {
	return c.do(ctx, http.MethodPost, path, answer)
}

// do sends a request and decodes the answer, which has the status 200 or an accepted one.
func (c *adminClient) do(ctx context.Context, method, path string, answer any, accepted ...int) error {
	if method == http.MethodGet { // what a healthy daemon answers at once
		limited, cancel := context.WithTimeout(ctx, answerTime)
		defer cancel()
		ctx = limited
	}
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, nil)
	if err != nil {
		return err
	}
	if c.token != "" && method != http.MethodGet {
		req.Header.Set("Authorization", "Bearer "+c.token.Reveal())
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return c.explainFailure(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, largestAnswer))
	switch {
	case err != nil:
		return fmt.Errorf("the daemon at %s: %w", c.at, err)
	case resp.StatusCode == http.StatusUnauthorized && c.token == "":
		return fmt.Errorf("the daemon at %s accepts changes only with its token; name the file that has it with --token-file, or set admin.token as the daemon has it", c.at)
	case resp.StatusCode == http.StatusUnauthorized:
		return fmt.Errorf("the daemon at %s does not accept this token; name the file that has its token with --token-file, or set admin.token as the daemon has it", c.at)
	case resp.StatusCode != http.StatusOK && !slices.Contains(accepted, resp.StatusCode):
		return c.responseError(resp.Status, body)
	}
	if err := json.Unmarshal(body, answer); err != nil {
		return fmt.Errorf("%s answers with something else than feedbridge's admin server: %w; is the address right?", c.at, err)
	}
	return nil
}

// explainFailure returns the error of a request that had no response.
func (c *adminClient) explainFailure(err error) error {
	if e, ok := errors.AsType[*url.Error](err); ok {
		err = e.Err // without the URL, which for a socket is not the one that was named
	}
	if errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.ENOENT) {
		return fmt.Errorf("no daemon answers at %s: %w; is it running with this configuration? --admin names another address", c.at, err)
	}
	return fmt.Errorf("no answer from the daemon at %s: %w", c.at, err)
}

// responseError returns the error in a response: the errors of a failed change, each on a line
// of its own, or the text of the response.
func (c *adminClient) responseError(status string, body []byte) error {
	var failed struct{ Errors []string }
	if json.Unmarshal(body, &failed) == nil && len(failed.Errors) > 0 {
		return errors.New(strings.Join(failed.Errors, "\n"))
	}
	return fmt.Errorf("the daemon at %s answers %s: %s%s", c.at, status, bytes.TrimSpace(body), c.hint)
}
