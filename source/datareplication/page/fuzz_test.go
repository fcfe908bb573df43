package page

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"mime/multipart"
	"net/textproto"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/feedbridge/feedbridge/internal/testkit/cputime"
	"github.com/feedbridge/feedbridge/internal/testkit/mutation"
	"github.com/feedbridge/feedbridge/source/link"
)

// FuzzLinks writes a well-formed header from its input, reads it back, and then reads it
// with one byte changed. No change may lose a link silently.
func FuzzLinks(f *testing.F) {
	f.Add("/2", "a title", "x", uint8(0), uint16(0), byte(0))
	f.Add("/feed,1;v=2?a=b&c=%2C", `quo"ted, \ ; rel=prev`, "prev-archive", uint8(3), uint16(20), byte('<'))
	f.Add("2", "<x>; rel=self", "last", uint8(5), uint16(3), byte('"'))
	f.Fuzz(mutation.OfCorpus(200, func(t *testing.T, path, title, relation string, form uint8, at uint16, char byte) {
		if len(path)+len(title)+len(relation) > 500 {
			return
		}
		base := mustURL(t, "https://x.example/feed/latest")
		// Whatever it is, it must not panic.
		_, _, _ = ParseLinks([]string{path, title}, base)
		cputime.CheckRepeated(t, path+title, func(field string) { _, _, _ = ParseLinks([]string{field}, base) })

		path, title = keepBytes(path, isURLByte), keepBytes(title, isFieldByte)
		next, ok := resolveLink(base, "/p"+path)
		relation = keepBytes(strings.ToLower(relation), func(c byte) bool { return c >= 'a' && c <= 'z' || c == '-' })
		if !ok || ours.MatchString(relation) || relation == "" || relation[0] == '-' {
			return
		}
		want := Links{Self: p2, Next: next}
		quotedTitle := `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(title) + `"`
		values := []string{
			"<" + p2 + ">; rel=self",
			"</other>; title=" + quotedTitle + "; rel=" + relation + "; nopush",
			"</p" + path + ">; title=" + quotedTitle + `; rel="next"`,
		}
		values = slices.Concat(values[form%3:], values[:form%3])
		if form&4 != 0 {
			slices.Reverse(values)
		}
		field := strings.Join(values, ", ")
		if got, violations, err := ParseLinks([]string{field}, base); err != nil || violations != nil || got != want {
			t.Fatalf("%s:\ngot %+v, %v, %v", field, got, violations, err)
		}
		if got, _, err := ParseLinks(values, base); err != nil || got != want {
			t.Fatalf("%q:\ngot %+v, %v", values, got, err)
		}

		loseNext(t, field, int(at)%strings.LastIndex(field, intactNext), char&0x7f)
	}))
}

// intactNext is the parameter that [loseNext] leaves as it is.
const intactNext = ` rel="next"`

// loseNext changes one byte of a Link field, at a place before a link's last
// parameter, which is rel="next". Removed, replaced or with another before it,
// that may cost the link's URL, but then there is an error: the link does not
// vanish.
func loseNext(t *testing.T, field string, at int, char byte) {
	t.Helper()
	for _, broken := range []string{
		field[:at] + field[at+1:],
		field[:at] + string(rune(char)) + field[at+1:],
		field[:at] + string(rune(char)) + field[at:],
	} {
		// RFC 8288 has the first of two rel parameters count. A blank target
		// is an absent link.
		if strings.Count(strings.ToLower(broken), "rel") != strings.Count(strings.ToLower(field), "rel") || blankTarget(broken) {
			continue
		}
		if got, _, err := ParseLinks([]string{broken}, mustURL(t, p2)); err == nil && got.Next == "" {
			t.Fatalf("lost the next link:\n%s\n%s\ngot %+v", field, broken, got)
		}
	}
}

// blankTarget reports whether a link value may be one without a target.
func blankTarget(field string) bool {
	for l := range link.Read(field) {
		if !l.Malformed && l.Target == "" {
			return true
		}
	}
	return false
}

func keepBytes(s string, keep func(c byte) bool) string {
	return string(slices.DeleteFunc([]byte(s), func(c byte) bool { return !keep(c) }))
}

func isURLByte(c byte) bool {
	return c > ' ' && c < 0x7f && !strings.ContainsRune("<>\"#%", rune(c))
}

func isFieldByte(c byte) bool { return c >= ' ' && c < 0x7f }

func FuzzMediaType(f *testing.F) {
	for _, s := range []string{
		"multipart/mixed; boundary=b", `multipart/package; boundary="<random-boundary>"`, "multipart/package; boundary=<random-boundary>",
		"MULTIPART; x; BOUNDARY=FOO", "multipart/mixed; boundary*=utf-8''a", `multipart/mixed; boundary="a b "`, `multipart/mixed; boundary="a\"b`, "text/plain",
	} {
		f.Add(s)
	}
	f.Fuzz(mutation.OfCorpus(200, func(t *testing.T, s string) {
		cputime.CheckRepeated(t, s, func(s string) { _, _ = ParseBoundary(s, "page") })
		got, err := ParseBoundary(s, "page")
		if (err == nil) != (got != "") || err != nil && !slices.Contains([]string{kindMissingContentType, kindBadContentType, kindMissingBoundary}, kindOf(err)) {
			t.Fatalf("%q: got %q, %v", s, got, err)
		}
		// Anything printable can be a boundary, if it is written properly, and so can the value
		// of a parameter before or behind it.
		if boundary := keepBytes(s, isFieldByte); boundary != "" {
			other := boundary + `"; boundary=x`
			written := mime.FormatMediaType("multipart/mixed", map[string]string{"b": other, "boundary": boundary, "boundary2": other})
			if got, err := ParseBoundary(written, "page"); err != nil || got != boundary {
				t.Fatalf("%s: got %q, %v", written, got, err)
			}
		}
	}))
}

// FuzzMultipart reads its input as a page, and as the content of a page that mime/multipart
// writes.
func FuzzMultipart(f *testing.F) {
	f.Add("b", "--b\r\nA: 1\r\n\r\nfirst\r\n--b\r\nA: 2\n\n--b--", "A", "1", uint16(20))
	f.Add("b", "--b \nA: 1\n 2\n\n--bc\n--b--x\r\n--b\n", "Content-ID", "<x>", uint16(3))
	f.Add("b: x", "first", "--b", "x", uint16(20)) // a field that is a delimiter
	f.Add("bound-ary", "\r\n--bound-ary\r\n\r\n\r\n--bound-ary--", "x", "", uint16(70))
	f.Fuzz(mutation.OfCorpus(200, func(t *testing.T, boundary, text, name, value string, cut uint16) {
		if len(boundary) > 100 || len(text) > 1<<12 {
			return
		}
		_, _ = readEveryWay(t, text, boundary, 1<<20)
		_, _ = readEveryWay(t, text, boundary, 20)
		cputime.CheckRepeated(t, text, func(text string) { _, _ = readParts(NewReader(strings.NewReader(text), boundary, "page", 1<<20)) })

		page, want, ok := writePage(boundary, text, name, value)
		if !ok {
			return
		}
		whole, err := readEveryWay(t, page, boundary, 1<<20)
		if err != nil {
			t.Fatalf("%q: %v", page, err)
		}
		if diff := cmp.Diff(want, readCanonical(t, page, boundary)); diff != "" {
			t.Fatalf("%q: %s", page, diff)
		}

		// A page that is cut before the end of the closing delimiter is detected, and its
		// complete parts are returned.
		end := strings.LastIndex(page, "--"+boundary+"--") + len("--"+boundary+"--")
		part := page[:int(cut)%end]
		got, err := readEveryWay(t, part, boundary, 1<<20)
		if !errors.Is(err, ErrTruncated) {
			t.Fatalf("%q: got %v", part, err)
		}
		if len(got) > len(whole) || !slices.Equal(got, whole[:len(got)]) {
			t.Fatalf("%q: got %q of %q", part, got, whole)
		}
	}))
}

// readEveryWay fails the test if it makes a difference how the bytes arrive.
func readEveryWay(t *testing.T, page, boundary string, maxEntity int) ([]string, error) {
	t.Helper()
	want, wantErr := readParts(NewReader(strings.NewReader(page), boundary, "https://x.example/2", maxEntity))
	for how, r := range readers(page, boundary, maxEntity) {
		got, err := readParts(r)
		if fmt.Sprint(err) != fmt.Sprint(wantErr) || !slices.Equal(got, want) {
			t.Fatalf("%s: %q: got %q, %v; at once: %q, %v", how, page, got, err, want, wantErr)
		}
	}
	return want, wantErr
}

// writePage has mime/multipart write a page whose parts are the lines of text,
// and read it again. It is not ok if that cannot be a proper page.
func writePage(boundary, text, name, value string) (page string, parts []string, ok bool) {
	value = strings.ToValidUTF8(strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return -1
		}
		return r
	}, value), "")
	if !isToken(name) || strings.Contains(text, "--"+boundary) || strings.HasPrefix(name, "--") {
		return "", nil, false
	}
	var b bytes.Buffer
	w := multipart.NewWriter(&b)
	if w.SetBoundary(boundary) != nil {
		return "", nil, false
	}
	for i, body := range strings.Split(text, "\x00") {
		header := textproto.MIMEHeader{"X-Number": {fmt.Sprint(i)}, name: {value, url.PathEscape(body)}}
		if i%3 == 2 {
			header = nil
		}
		p, err := w.CreatePart(header)
		if err != nil {
			return "", nil, false
		}
		_, _ = io.WriteString(p, body)
	}
	if w.Close() != nil {
		return "", nil, false
	}

	r := multipart.NewReader(bytes.NewReader(b.Bytes()), boundary)
	for {
		p, err := r.NextRawPart()
		if errors.Is(err, io.EOF) {
			return b.String(), parts, true
		}
		if err != nil {
			return "", nil, false
		}
		body, err := io.ReadAll(p)
		if err != nil {
			return "", nil, false
		}
		parts = append(parts, canonical(p.Header, body))
	}
}

// readCanonical reads a page and shows its parts as mime/multipart would, which
// loses the case and the order of names.
func readCanonical(t *testing.T, page, boundary string) (parts []string) {
	t.Helper()
	r := NewReader(strings.NewReader(page), boundary, "page", 1<<20)
	for {
		p, err := r.Next()
		if errors.Is(err, io.EOF) {
			return parts
		}
		if err != nil {
			t.Fatalf("%q: %v", page, err)
		}
		header := textproto.MIMEHeader{}
		for _, f := range p.Header {
			header.Add(f.Name, f.Value)
		}
		parts = append(parts, canonical(header, p.Body))
	}
}

func canonical(header textproto.MIMEHeader, body []byte) string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(header)) {
		fmt.Fprintf(&b, "%s: %q\n", name, header[name])
	}
	return b.String() + "\n" + string(body)
}

// isToken reports whether s is a token of RFC 9110, which every header name is.
func isToken(s string) bool {
	for i := range len(s) {
		if !isTokenByte[s[i]] {
			return false
		}
	}
	return s != ""
}
