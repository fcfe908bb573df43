package admin

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// privateDomains are the ends of host names that the public DNS does not have. Kubernetes
// services are below svc and cluster.local.
var privateDomains = []string{".localhost", ".svc", ".cluster.local", ".internal"}

// hosts are the names of the server in the public DNS.
type hosts []string

// checkHost answers requests whose Host header has a name that anybody could own with 403,
// and passes the others on to next. Otherwise a web page could read this server through the
// browser of someone who reaches it, by a name of its own that it resolves to the server's address (DNS
// rebinding).
//
// Probes may use any name: /healthz, which shows nothing, answers all requests, and /readyz
// answers a foreign name with the status and without the reasons.
//
// A request that a page of another site makes gets 403 as well, whatever its path; see isCrossSite.
//
// Requests by the Unix socket are not checked, because a browser cannot connect to it.
func (h hosts) checkHost(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case isCrossSite(r):
			http.Error(w, "a page of another site may not send requests to this server", http.StatusForbidden)
			return
		case h.contains(r.Host) || r.URL.Path == "/healthz":
		case r.URL.Path == "/readyz":
			next.ServeHTTP(statusOnly{w}, r)
			_, _ = io.WriteString(w, "only the status is shown to clients that use another name than those in admin.hosts, or the IP address\n")
			return
		default:
			http.Error(w, fmt.Sprintf("the Host header has the name %q, which this server does not have; use its IP address, or add the name to admin.hosts", hostName(r.Host)), http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// isCrossSite reports whether a browser says that a page of another site makes the request. A link that a
// person follows is none: the other page does not see the answer.
func isCrossSite(r *http.Request) bool {
	followed := r.Method == http.MethodGet && r.Header.Get("Sec-Fetch-Mode") == "navigate" && r.Header.Get("Sec-Fetch-Dest") == "document"
	return r.Header.Get("Sec-Fetch-Site") == "cross-site" && !followed
}

// statusOnly sends the status of an answer, and drops its body.
type statusOnly struct{ http.ResponseWriter }

func (w statusOnly) WriteHeader(status int) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.ResponseWriter.WriteHeader(status)
}

func (w statusOnly) Write(b []byte) (int, error) { return len(b), nil }

// contains reports whether a Host header has an IP address, a name that is not in the public
// DNS, or one of h. Clients of HTTP/1.0 may have none; browsers always have one.
func (h hosts) contains(header string) bool {
	name := hostName(header)
	if _, err := netip.ParseAddr(name); err == nil || !strings.Contains(name, ".") {
		return true
	}
	isPrivate := func(domain string) bool { return strings.HasSuffix(name, domain) }
	return slices.ContainsFunc(privateDomains, isPrivate) ||
		slices.ContainsFunc(h, func(own string) bool { return hostName(own) == name })
}

// hostName returns the host of a Host header in lower case, without the port, the brackets of
// an IPv6 address, and the dot at the end of an absolute name.
func hostName(header string) string {
	host, _, err := net.SplitHostPort(header)
	if err != nil {
		host = strings.TrimSuffix(strings.TrimPrefix(header, "["), "]")
	}
	return strings.ToLower(strings.TrimSuffix(host, "."))
}
