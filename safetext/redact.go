package safetext

import (
	"bytes"
	"encoding/json"
	"net/url"
	"regexp"
	"slices"
	"strings"
)

// Parameters are the names of query parameters whose values count as secrets.
// They are compared without regard to case. A name that ends with one of them
// behind a hyphen, an underscore or a point counts too: X-Amz-Signature,
// client_secret.
var Parameters = []string{
	"key", "api-key", "api_key", "apikey", "access_key", "accesskey", "token", "access_token", "accesstoken", "sig", "signature",
	"password", "passwd", "passphrase", "pass", "pwd", "secret", "auth", "authorization", "credential", "credentials", "jwt", "session", "sessionid", "sid",
}

// mask replaces a secret.
const mask = "***"

// Redactor hides the secrets of URLs: the values of the query parameters that
// are secret, and user names and passwords. The nil Redactor is ready for use. Any
// number of goroutines may use one.
type Redactor struct {
	parameters *regexp.Regexp
}

var standard = NewRedactor()

// NewRedactor returns a Redactor that takes the parameters with the given names
// for secret as well as [Parameters].
func NewRedactor(names ...string) *Redactor {
	var all []string
	for _, name := range slices.Concat(Parameters, names) {
		all = append(all, regexp.QuoteMeta(name))
	}
	// A value ends where a query or a text around it goes on, as with the colon of an
	// error.
	return &Redactor{regexp.MustCompile(`(?i)([?&;](?:[\w%.~-]*[_.-])?(?:` + strings.Join(all, "|") + `)=)[^&;#\s"'<>\x60]*[^&;#\s"'<>\x60:,.)]`)}
}

// userinfo is what stands between the scheme and the host of a URL.
var userinfo = regexp.MustCompile(`(?i)(\b[a-z][a-z0-9+.-]*://)[^/?#\s"'<>@]*@`)

// Text hides the secrets of all URLs in a text.
func (r *Redactor) Text(text string) string {
	if r == nil {
		r = standard
	}
	if strings.IndexByte(text, '=') >= 0 {
		text = r.parameters.ReplaceAllString(text, "${1}"+mask)
	}
	if strings.Contains(text, "://") && strings.IndexByte(text, '@') >= 0 {
		text = userinfo.ReplaceAllString(text, "${1}"+mask+"@")
	}
	return text
}

// URL returns a URL without its user name and password, and with its secret
// parameters hidden. It keeps the URL as it is written otherwise.
func (r *Redactor) URL(raw string) string {
	if at := strings.IndexByte(raw, '@'); at >= 0 {
		if u, err := url.Parse(raw); err == nil && u.User != nil {
			u.User = nil
			raw = u.String()
		}
	}
	return r.Text(raw)
}

// Clip cleans a text, hides its secrets, and limits its length, as the function
// [Clip] does.
func (r *Redactor) Clip(text string, most int) string {
	return cut(r.Text(Clean(text)), most)
}

// JSON returns the JSON text b with every string in it clipped as by Clip, so
// that it can be shown to a person.
func (r *Redactor) JSON(b []byte, most int) []byte {
	out := make([]byte, 0, len(b))
	for len(b) > 0 {
		start := bytes.IndexByte(b, '"')
		if start < 0 {
			break
		}
		end := start + 1
		for end < len(b) && b[end] != '"' {
			if b[end] == '\\' {
				end++
			}
			end++
		}
		end = min(end+1, len(b))
		var text string
		if json.Unmarshal(b[start:end], &text) != nil {
			break // not JSON
		}
		out = append(out, b[:start]...)
		out = appendQuoted(out, r.Clip(text, most))
		b = b[end:]
	}
	return append(out, b...)
}

func appendQuoted(out []byte, text string) []byte {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(text) // a string can be encoded
	return append(out, bytes.TrimSuffix(b.Bytes(), []byte("\n"))...)
}
