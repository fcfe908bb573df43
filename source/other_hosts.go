package source

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"

	"github.com/feedbridge/feedbridge/feed"
)

// A feed may lead to these hosts:
//
//   - its origin: the scheme, host and port of its URL. If that is http on its usual port, https on
//     the usual port of the same host is the origin, too. Credentials and configured headers go
//     to the origin only, and no redirect changes which host it is.
//   - the hosts of AllowHosts.
//   - where a redirect leads, if the feed has no credentials, or if it leads from http to https on
//     the same host name. Such a host must have a public address. From then on links may lead there
//     as well.
//
// A link to any other host is refused: the links of a copy of a feed often lead to the original.
// Nothing leads from https back to http.

// checkLink returns an error unless the feed may lead to u, which is the URL of r.
func (c *Client) checkLink(ctx context.Context, r Request, u *url.URL) error {
	known := func() bool { return c.atOrigin(u) || c.allowsHost(u) || c.reached.contains(hostPort(u)) }
	if err := c.checkHost(c.origin, u, true); err != nil || known() {
		return err
	}
	if r.URL != c.cfg.URL && !c.cfg.hasCredentials() {
		if err := c.followURL(ctx); err != nil {
			return err
		}
	}
	return c.checkHost(c.origin, u, known())
}

// followURL follows the redirects of the feed's URL, unless it has done so before. After a restart
// the cursor may name a page of a host that they lead to.
func (c *Client) followURL(ctx context.Context) error {
	c.reached.following.Lock()
	defer c.reached.following.Unlock()
	if c.reached.followed {
		return nil
	}
	res, err := c.Do(ctx, Request{Method: http.MethodHead, URL: c.cfg.URL})
	if err == nil {
		err = res.Body.Close()
	}
	if c.reached.followed = err == nil || errors.Is(err, feed.ErrPermanent); c.reached.followed {
		return nil
	}
	return err
}

// checkRedirect returns an error unless a redirect may lead from one URL to the other.
func (c *Client) checkRedirect(from, to *url.URL) error {
	if c.atOrigin(to) || c.allowsHost(to) {
		return c.checkHost(from, to, true)
	}
	upgrade := from.Scheme == "http" && to.Scheme == "https" && strings.EqualFold(from.Hostname(), to.Hostname())
	if err := c.checkHost(from, to, upgrade || !c.cfg.hasCredentials()); err != nil {
		return err
	}
	if addr, err := netip.ParseAddr(to.Hostname()); err == nil {
		if err := publicOnly.SafeAddr(addr); err != nil {
			return explainTransport(err)
		}
	}
	if c.reached.addHost(hostPort(to)) {
		c.log.Info("a redirect leads to another host; it is followed, without credentials", "from", c.redact.URL(from.String()), "to", c.redact.URL(to.String()))
	}
	return nil
}

// checkHost returns an error unless one URL may lead to the other. known reports that the feed may
// lead to the host of that.
func (c *Client) checkHost(from, to *url.URL, known bool) error {
	refuse := func(format string, args ...any) error { return feed.Permanent(fmt.Errorf(format, args...)) }
	switch {
	case to.Scheme != "http" && to.Scheme != "https":
		return refuse("only http and https URLs can be read, and they must be absolute")
	case to.Hostname() == "":
		return refuse("the URL has no host")
	case to.User != nil:
		return refuse("links and redirects must not contain credentials; ask the provider to fix them")
	case to.Scheme == "http" && (from.Scheme == "https" || c.origin.Scheme == "https"):
		return refuse("a redirect or link from https back to http is refused; ask the provider to fix it")
	case !known:
		return refuse("%s is not the host of the feed, %s: name it in allow_hosts if the feed may lead there", to.Host, c.origin.Host)
	}
	return nil
}

// atOrigin reports whether credentials may be sent to u.
func (c *Client) atOrigin(u *url.URL) bool {
	if u.Scheme == c.origin.Scheme {
		return hostPort(u) == hostPort(c.origin)
	}
	return u.Scheme == "https" && strings.HasSuffix(hostPort(u), ":443") && strings.HasSuffix(hostPort(c.origin), ":80") &&
		strings.EqualFold(u.Hostname(), c.origin.Hostname())
}

func (c *Client) allowsHost(u *url.URL) bool {
	return slices.ContainsFunc(c.allowed, func(host string) bool {
		return hostPort(&url.URL{Scheme: u.Scheme, Host: host}) == hostPort(u)
	})
}

// hasCredentials reports whether requests to the origin carry anything that another host must
// not see. Configured headers count as secrets, whatever they are.
func (c *Config) hasCredentials() bool {
	return len(c.Headers) > 0 || len(c.Auth.authorizationKeys()) > 0 || c.Auth.TLS.CertFile != ""
}

// reachedHosts are the hosts that redirects have led to.
type reachedHosts struct {
	following sync.Mutex // guards followed
	followed  bool       // the redirects of the feed's URL were followed

	mu    sync.Mutex // guards hosts
	hosts []string   // as hostPort returns them, the newest last
}

// mostReached limits the hosts that are remembered.
const mostReached = 16

func (r *reachedHosts) contains(host string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Contains(r.hosts, host)
}

// addHost reports whether the host is new.
func (r *reachedHosts) addHost(host string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if slices.Contains(r.hosts, host) {
		return false
	}
	r.hosts = append(r.hosts[max(0, len(r.hosts)+1-mostReached):], host)
	return true
}

// AddReached adds the host of a URL to those that redirects have led to, if the feed has no
// credentials. The cursor of the caller has the URL because a permanent redirect led there.
func (c *Client) AddReached(rawURL string) {
	if u, err := url.Parse(rawURL); err == nil && !c.cfg.hasCredentials() {
		c.reached.addHost(hostPort(u))
	}
}
