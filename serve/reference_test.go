package serve

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
	"github.com/feedbridge/feedbridge/internal/testkit/parallel"
)

// reference is a reader with the ways of the Java consumer, the reference
// implementation, as its behaviour is known: it reads what that one reads, and
// fails where that one fails. It takes pages one after the other.
type reference struct {
	url string
	// With an ID it starts after that entity, with only a time at the first entity of that
	// time or later, and otherwise at the beginning.
	at time.Time
	id string
}

// aPage is a page as it sees one. Each Link line is one link to it.
type aPage struct {
	self, prev, next string
	modified         time.Time
	boundary         string
}

// aPart is a part as the reference parses it.
type aPart struct {
	id, op, contentType string
	modified            time.Time
	body                string
}

// entities crawls back to the start page, reads on from there, and leaves out the entities
// before the start.
func (r reference) entities() (got []aPart, err error) {
	p, _, err := r.request(http.MethodHead, r.url)
	start := ""
	for err == nil && start == "" {
		switch {
		case !r.at.IsZero() && p.modified.Before(r.at):
			if start = p.next; start == "" {
				return nil, fmt.Errorf("missing next link header")
			}
		case p.prev != "":
			p, _, err = r.request(http.MethodHead, p.prev)
		case !r.at.IsZero():
			return nil, fmt.Errorf("feed not old enough")
		default:
			start = p.self
		}
	}
	found := r.id == ""
	for at := start; err == nil && at != ""; at = p.next {
		var parts []aPart
		if p, parts, err = r.request(http.MethodGet, at); err != nil {
			return got, err
		}
		for _, e := range parts {
			switch {
			case len(got) == 0 && e.modified.Before(r.at):
			case found:
				got = append(got, e)
			case e.id == r.id:
				found = true
			case e.modified.After(r.at):
				return nil, fmt.Errorf("content id not found")
			}
		}
	}
	return got, err
}

// request reads a page with its header fields, and with its parts if it is a GET.
func (r reference) request(method, url string) (p aPage, parts []aPart, err error) {
	req, err := http.NewRequest(method, url, nil)
	if err != nil {
		return p, nil, err
	}
	// It offers an upgrade that a server has to leave alone.
	req.Header = http.Header{"Connection": {"Upgrade, HTTP2-Settings"}, "Upgrade": {"h2c"}, "Http2-Settings": {"AAEAAEAAAAIAAAABAAMAAABkAAQBAAAAAAUAAEAA"}}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return p, nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return p, nil, err
	}
	if resp.StatusCode >= 400 {
		return p, nil, fmt.Errorf("%s %s: status %d", method, url, resp.StatusCode)
	}
	if p, err = pageOf(resp.Header); err != nil || method == http.MethodHead {
		return p, nil, err
	}
	parts, err = partsOf(body, p.boundary)
	return p, parts, err
}

func pageOf(h http.Header) (p aPage, err error) {
	if len(h["Link"]) == 0 {
		return p, fmt.Errorf("missing self link header")
	}
	if p.modified, err = rfc1123(h.Get("Last-Modified")); err != nil {
		return p, err
	}
	for _, line := range h["Link"] {
		params := strings.Split(line, ";")
		target := strings.Replace(strings.Replace(strings.TrimSpace(params[0]), "<", "", 1), ">", "", 1)
		for _, param := range params[1:] {
			name, value, ok := strings.Cut(strings.TrimSpace(param), "=")
			if !ok {
				return p, fmt.Errorf("illegal argument: %q", line)
			}
			at := map[string]*string{"self": &p.self, "prev": &p.prev, "next": &p.next}[strings.Trim(value, `"`)]
			if name == "rel" && at != nil && *at == "" {
				*at = target
			}
		}
	}
	if p.self == "" {
		return p, fmt.Errorf("missing self link header")
	}
	main, params, _ := strings.Cut(h.Get("Content-Type"), ";")
	_, boundary, ok := strings.Cut(params, "boundary=")
	if !strings.HasPrefix(strings.ToLower(main), "multipart") || !ok {
		return p, fmt.Errorf("content type %q", h.Get("Content-Type"))
	}
	if quoted, ok := strings.CutPrefix(boundary, `"`); ok {
		p.boundary, _, _ = strings.Cut(quoted, `"`)
	} else {
		p.boundary, _, _ = strings.Cut(boundary, ";")
	}
	return p, nil
}

// rfc1123 is as strict as that of Java: the day of the week has to be right, and
// there is no zone but GMT and numbers.
func rfc1123(s string) (t time.Time, err error) {
	for _, layout := range []string{"Mon, _2 Jan 2006 15:04:05 GMT", "Mon, 2 Jan 2006 15:04:05 -0700"} {
		if t, err = time.Parse(layout, s); err == nil {
			break
		}
	}
	if err == nil && !strings.HasPrefix(s, t.Format("Mon")) {
		err = fmt.Errorf("the day of the week is wrong: %s", s)
	}
	return t, err
}

// partsOf cuts a page at its delimiters, which must not end with blanks. Where a header
// ends at the delimiter, without the line end that a body begins behind, the next part is
// taken for the body.
func partsOf(page []byte, boundary string) (parts []aPart, err error) {
	delimiter := []byte("--" + boundary)
	rest, ok := bytes.CutPrefix(page, delimiter)
	if !ok {
		return nil, fmt.Errorf("there is a preamble: %.100q", page)
	}
	for {
		if bytes.HasPrefix(rest, []byte("--")) {
			return parts, nil
		}
		if rest, ok = cutLineEnd(rest); !ok {
			return parts, fmt.Errorf("invalid delimiter in front of %.100q", rest)
		}
		header := map[string]string{}
		for {
			line, behind, ok := bytes.Cut(rest, []byte("\n"))
			if !ok {
				return parts, fmt.Errorf("unexpected end of input")
			}
			rest = behind
			if line = bytes.TrimSuffix(line, []byte("\r")); len(line) == 0 {
				break
			}
			name, value, ok := strings.Cut(string(line), ":")
			if !ok {
				return parts, fmt.Errorf("invalid header %q", line)
			}
			if name = strings.ToLower(strings.TrimSpace(name)); header[name] == "" {
				header[name] = strings.TrimSpace(value)
			}
		}
		end := bytes.Index(rest, append([]byte("\n"), delimiter...))
		if end < 0 {
			return parts, fmt.Errorf("unexpected end of input")
		}
		e := aPart{id: header["content-id"], contentType: header["content-type"], body: string(bytes.TrimSuffix(rest[:end], []byte("\r")))}
		rest = rest[end+1+len(delimiter):]
		e.op = strings.ReplaceAll(header["operation-type"], "http-equiv=", "")
		if e.op != "PUT" && e.op != "PATCH" && e.op != "DELETE" || e.id == "" || e.contentType == "" {
			return parts, fmt.Errorf("an entity with the header %v", header)
		}
		if e.modified, err = rfc1123(header["last-modified"]); err != nil {
			return parts, err
		}
		parts = append(parts, e)
	}
}

func cutLineEnd(b []byte) ([]byte, bool) {
	return bytes.CutPrefix(bytes.TrimPrefix(b, []byte("\r")), []byte("\n"))
}

// A served feed is read in all ways that the reference has: from the beginning, from a
// time, and behind an entity that is not on the oldest page. (The reference cannot start on
// that page with any server.)
func TestReference(t *testing.T) {
	t.Parallel()
	site, topic := newSite(t), newTopic()
	var all []aPart
	add := func(id string, op feed.Operation, second int, body string, fields ...feed.Field) {
		topic.add(messageOf(id, op, later(second), body, fields...))
		all = append(all, aPart{id, string(op), "text/plain", later(second), body})
	}
	for i := range 3 {
		add(fmt.Sprintf("<%d@x>", i), feed.Put, i, fmt.Sprint("body ", i))
	}
	add("empty@x", feed.Delete, 3, "", feed.Field{Name: "Link", Value: "<x>; rel=next"}, feed.Field{Name: "Content-Length", Value: "77"})
	add("behind an empty one@x", feed.Patch, 3, "\r\n\r\n")
	add("lines@x", feed.Put, 4, "--feedbridge\r\n--\r\n\r\nContent-ID: 1\r\n\r\n--\n", feed.Field{Name: "X-Note", Value: "é: a; b=\"c\""})
	add("same second@x", feed.Put, 4, "1", feed.Field{Name: "content-id", Value: "another"})
	all[len(all)-1].id = "another"
	add("and again@x", feed.Put, 4, "2")
	topic.skip(20)
	topic.add(feed.Record{Time: later(9), Body: []byte("of another program")})
	all = append(all, aPart{"28.e0@orders", "PUT", "application/octet-stream", later(9), "of another program"})
	site.feed.Store(serveTopic(t, topic).Feed)
	for name, test := range map[string]struct {
		reader reference
		want   []aPart
		fails  string
	}{
		"case 128: from the beginning":                 {reader: reference{}, want: all},
		"case 128: from a time":                        {reader: reference{at: later(3)}, want: all[3:]},
		"case 128: from a time between two":            {reader: reference{at: later(5)}, want: all[8:]},
		"case 128: behind an entity":                   {reader: reference{at: later(3), id: "empty@x"}, want: all[4:]},
		"case 128: behind the last of a second":        {reader: reference{at: later(4), id: "and again@x"}, want: all[8:]},
		"case 128: behind the last of all":             {reader: reference{at: later(9), id: "28.e0@orders"}, want: nil},
		"case 128: behind an entity that is not there": {reader: reference{at: later(4), id: "none"}, fails: "content id not found"},
		"case 128: behind one on the oldest page":      {reader: reference{at: later(1), id: "<1@x>"}, fails: "feed not old enough"},
	} {
		parallel.Run(t, name, func(t *testing.T) {
			test.reader.url = site.URL + "/feeds/orders/latest"
			got, err := test.reader.entities()
			if text := fmt.Sprint(err); text != test.fails && (err != nil || test.fails != "") {
				t.Fatalf("got %v, want %s", err, test.fails)
			}
			must.Match(t, "", test.want, got, cmp.AllowUnexported(aPart{}))
		})
	}
}
