package safetext_test

import (
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/feedbridge/feedbridge/internal/safetext"
	"github.com/feedbridge/feedbridge/internal/testkit/cputime"
	"github.com/feedbridge/feedbridge/internal/testkit/mutation"
)

// Each of these URLs showed a part of a secret.
func TestRedactEveryPositionOfASecret(t *testing.T) {
	t.Parallel()
	r := safetext.NewRedactor("ticket", "my code", "filter[shop]")
	for in, want := range map[string]string{
		"https://x/feed#access_token=abc&state=1":                        "https://x/feed#access_token=***&state=1",
		"https://x/feed#/route?token=abc":                                "https://x/feed#/route?token=***",
		"https://x/feed?%74oken=abc":                                     "https://x/feed?%74oken=***",
		"https://x/feed?my%20code=abc":                                   "https://x/feed?my%20code=***",
		"https://x/feed?my+code=abc":                                     "https://x/feed?my+code=***",
		"https://x/feed?filter[shop]=abc&filter[a]=1":                    "https://x/feed?filter[shop]=***&filter[a]=1",
		"https://x/feed?filter%5Bshop%5D=abc":                            "https://x/feed?filter%5Bshop%5D=***",
		"https://x/feed?%2574icket=abc":                                  "https://x/feed?%2574icket=***",
		"https://x/feed?token=a'b&x=1":                                   "https://x/feed?token=***&x=1",
		"https://x/feed?token=a;b&x=1":                                   "https://x/feed?token=***&x=1",
		"https://x/feed?token=a;b=c&x=1":                                 "https://x/feed?token=***&x=1",
		"https://x/feed?token=a%26b%23c&x=1":                             "https://x/feed?token=***&x=1",
		"https://x/feed?token=a.b:c)d":                                   "https://x/feed?token=***",
		"https://x/feed;token=abc/1":                                     "https://x/feed;token=***",
		"https://x/feed?auth[token]=abc&token[]=d":                       "https://x/feed?auth[token]=***&token[]=***",
		"https://x/feed?clientSecret=abc&monKEY=1":                       "https://x/feed?clientSecret=***&monKEY=***",
		"https://x/feed?next=https%3A%2F%2Fy%2F%3Ftoken%3Dabc%26b%3D1&c": "https://x/feed?next=https%3A%2F%2Fy%2F%3Ftoken%3D***%26b%3D1&c",
		"https://x/feed?next=https%3A%2F%2Fu%3Apw%40y%2Ffeed":            "https://x/feed?next=https%3A%2F%2F***%40y%2Ffeed",
		"https://x/feed?state=token%3Dabc":                               "https://x/feed?state=token%3D***",
		"http://u:p@ss@host/feed":                                        "http://***@host/feed",
		"http://u:p'w@host/feed":                                         "http://***@host/feed",
		"http://u:p/w?x#y@host/feed":                                     "http://***@host/feed",
		"//u:pw@host/feed":                                               "//***@host/feed",
		`{"next":"http:\/\/u:pw@host\/feed?a=1\u0026token\u003dabc"}`:    `{"next":"http:\/\/***@host\/feed?a=1\u0026token\u003d***"}`,
		`<link href="http://x/?a=1&amp;token=abc"/> <b>`:                 `<link href="http://x/?a=1&amp;token=***"/> <b>`,
		`<link href="http://x/?a=1&#38;token&#61;abc"/>`:                 `<link href="http://x/?a=1&#38;token&#61;***"/>`,
		`a http://u:p@h/ and 'http://x/?key=abc', http://y/?sig=d.`:      `a http://***@h/ and 'http://x/?key=***', http://y/?sig=***.`,
		"nats://u:p@h1:4222,nats://u2:p@2@h2:4222":                       "nats://***@h1:4222,nats://***@h2:4222",
		`a URL that was cut: "http://u:pass": EOF`:                       `a URL that was cut: "http://***": EOF`,
		// These have none.
		"http://[fe80::a]/x http://h:80: http://h: x":        "http://[fe80::a]/x http://h:80: http://h: x",
		"https://medium.example/feed/@somebody":              "https://medium.example/feed/@somebody",
		"https://[::1]:8443/@a https://x:8080/b@c":           "https://[::1]:8443/@a https://x:8080/b@c",
		"key=abc, the key = 1; a token=1":                    "key=abc, the key = 1; a token=1",
		`time=2026-01-01 level=INFO msg="x" key=1 error="y"`: `time=2026-01-01 level=INFO msg="x" key=1 error="y"`,
	} {
		if got := r.Text(in); got != want {
			t.Errorf("Text(%s)\ngot  %s\nwant %s", in, got, want)
		}
	}
	for in, want := range map[string]string{
		`https://u:pw@x/?a=1&key=a"b c<d>&e=1`: `https://x/?a=1&key=***&e=1`,
		`http://u:p w/x@host/?key=a`:           `http://***@host/?key=***`,
		"https://x/?token=a.":                  "https://x/?token=***",
	} {
		if got := r.URL(in); got != want {
			t.Errorf("URL(%s)\ngot  %s\nwant %s", in, got, want)
		}
	}
}

func TestExcerptHidesWhatItCuts(t *testing.T) {
	t.Parallel()
	var r *safetext.Redactor
	for in, want := range map[string]string{
		"short":                                "short",
		"":                                     "",
		"a longer text":                        "a longer …",
		"a http://user:word@host/":             "a http://…",
		"?token=" + strings.Repeat("s", 1<<20): "?token=**…",
	} {
		if got := r.Excerpt(in, 10); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// The start and the end of a secret, which no other part of a test has.
const secretStart, secretEnd = "S7art", "3nd0fIt"

// redactedNames are names of secret parameters, in which case does not matter.
var redactedNames = []string{"token", "ticket", "X-Amz-Signature", "client_secret", "mycode", "api_key"}

// FuzzRedact puts a secret in each place of a URL that may have one, and the URL in
// texts of several kinds.
func FuzzRedact(f *testing.F) {
	for place := range uint8(len(secretPlaces)) {
		for around := range uint8(len(textsAroundURLs)) {
			f.Add("-", "012"[:place%4], place, around)
		}
	}
	for name := range len(redactedNames) {
		for _, spelling := range []string{"0", "1", "2"} {
			f.Add("", strings.Repeat(spelling, name), uint8(0), uint8(0))
		}
	}
	f.Add("'; @%26=&", "1", uint8(0), uint8(0))
	f.Add("p@s;s/?#", "01", uint8(3), uint8(1))
	f.Add("a%2", "0120", uint8(1), uint8(2))
	r := safetext.NewRedactor("ticket", "mycode")
	f.Fuzz(mutation.OfCorpus(10, func(t *testing.T, middle, spelling string, place, around uint8) {
		if len(middle) > 200 {
			return
		}
		name := spell(redactedNames[len(spelling)%len(redactedNames)], spelling)
		p := secretPlaces[int(place)%len(secretPlaces)]
		secret := secretStart + keep(middle, p.allowed) + secretEnd
		if strings.Contains(p.url, "%3D") {
			secret = url.QueryEscape(secret)
		}
		raw := strings.NewReplacer("NAME", name, "SECRET", secret).Replace(p.url)
		text := strings.ReplaceAll(textsAroundURLs[int(around)%len(textsAroundURLs)], "URL", raw)
		got := []string{r.Text(text), r.URL(raw), r.Clip(text, 60), r.Clip(text, 1000), r.Excerpt(text, 40), r.Text(url.QueryEscape(raw)), r.Text("http://x/?u=" + url.QueryEscape(raw)), string(r.JSON([]byte(`{"a":"`+raw+`"}`), 1000))}
		for _, shown := range got {
			if strings.Contains(shown, secretStart) || strings.Contains(shown, secretEnd) {
				t.Fatalf("%q\nis shown as %q", text, shown)
			}
		}
		cputime.CheckRepeated(t, text, func(text string) { r.Text(text) })
		if again := r.Text(got[0]); again != got[0] {
			t.Fatalf("%q\nis redacted again to %q", got[0], again)
		}
	}))
}

const (
	unreserved = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~"
	// A value ends at & and #. All else that a URI has may be in it.
	inValue = unreserved + "!$'()*+,;=:@/?[]"
	// A password ends where the path begins.
	inPassword = unreserved + "!$&'()*+,;=:@"
)

// spell writes each character of a name as it is, in the other case or percent-encoded. The
// bytes of spelling say how.
func spell(name, spelling string) string {
	var b strings.Builder
	for i := range len(name) {
		c := name[i]
		how := byte(0)
		if spelling != "" {
			how = spelling[i%len(spelling)] % 3
		}
		switch letter := c | 0x20; {
		case how == 2:
			fmt.Fprintf(&b, "%%%02X", c)
		case how == 1 && letter >= 'a' && letter <= 'z':
			b.WriteByte(c ^ 0x20)
		default:
			b.WriteByte(c)
		}
	}
	return b.String()
}

var secretPlaces = []struct{ url, allowed string }{
	{"https://host/feed?NAME=SECRET", inValue},
	{"https://host/feed?a=1&NAME=SECRET&b=2", inValue},
	{"https://host/feed?a=1;NAME=SECRET&b=2#c", inValue},
	{"https://user:SECRET@host:8080/feed?a=1", inPassword},
	{"https://SECRET@host/", inPassword},
	{"https://host/feed#NAME=SECRET&b=2", inValue},
	{"https://host/feed?clientSecret=SECRET", inValue},
	{"https://host/feed#a=1&NAME=SECRET", inValue},
	{"https://host/feed;NAME=SECRET", inValue},
	{"https://host/?a=1&NAME[]=SECRET", inValue},
	{"https://user:p@host/feed?NAME=x&NAME=SECRET", inValue},
	{"https://host/?next=https%3A%2F%2Fother%2F%3FNAME%3DSECRET%26b%3D1", unreserved},
	{"//user:SECRET@host/feed", inPassword},
	{"https://user:p/SECRET@host/feed", inPassword},
}

var textsAroundURLs = []string{
	"URL", "GET URL: 404 Not Found; check the url", `Get "URL": EOF`, "<URL>; rel=next, <https://other/?page=2>",
	`<link href="URL"/>`, "('URL')", "see https://other/1, URL, and http://u:p@x/?sig=1.", "a=URL", "URL URL",
	`{"a":"URL","b":"c"}`, "line\nURL\nline",
}

// keep returns the characters of s that are among the allowed, and percent-encodes
// the others.
func keep(s, allowed string) string {
	var b strings.Builder
	for i := range len(s) {
		if strings.IndexByte(allowed, s[i]) >= 0 {
			b.WriteByte(s[i])
		} else {
			b.WriteString(url.QueryEscape(s[i : i+1]))
		}
	}
	return b.String()
}

// A name that can be no parameter's is refused, and every other one is hidden.
func TestCheckParameter(t *testing.T) {
	t.Parallel()
	for c := byte(1); c < 0x80; c++ {
		name := "te" + string(c) + "st"
		err := safetext.CheckParameter(url.QueryEscape(name))
		if forbidden := strings.IndexByte("/;!?&#=", c) >= 0; forbidden != (err != nil) {
			t.Errorf("%q: %v", name, err)
		}
		if got := safetext.NewRedactor(url.QueryEscape(name)).Text("https://x/?" + url.QueryEscape(name) + "=s3cret"); err == nil && strings.Contains(got, "s3cret") {
			t.Errorf("%q is accepted and not hidden: %s", name, got)
		}
	}
	for length, accepted := range map[int]bool{200: true, 201: false} {
		name := strings.Repeat("x", length)
		err := safetext.CheckParameter(name)
		got := safetext.NewRedactor(name).Text("https://x/?" + name + "=s3cret")
		if hidden := !strings.Contains(got, "s3cret"); (err == nil) != accepted || hidden != accepted {
			t.Errorf("a name of %d bytes: %v; hidden: %v", length, err, hidden)
		}
		if err != nil && len(err.Error()) > 300 {
			t.Errorf("the error is %s", err)
		}
	}
	if err := safetext.CheckParameter("ticket=s3cret"); err == nil || !strings.HasPrefix(err.Error(), `"ticket=…": `) || strings.Contains(err.Error(), "s3cret") {
		t.Errorf("the error is %v", err)
	}
}
