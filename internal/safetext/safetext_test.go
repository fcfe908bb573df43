package safetext_test

import (
	"encoding/json"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/feedbridge/feedbridge/internal/safetext"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
	"github.com/feedbridge/feedbridge/internal/testkit/parallel"
)

func TestClip(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, in, want string }{
		{"nothing", "", ""},
		{"plain", "an entry, 1 of 2", "an entry, 1 of 2"},
		{"other scripts", "Zoë 東京 🚀", "Zoë 東京 🚀"},
		{"lines", " a\r\n\tb \n", "a b"},
		{"an escape sequence", "\x1b[2Ja", `\x1b[2Ja`},
		{"the escape sequence of one byte", "\u009b2Ja", `\u009b2Ja`},
		{"another direction", "a\u202ecod.exe", `a\u202ecod.exe`},
		{"no width", "a\u200bb", `a\u200bb`},
		{"no UTF-8", "a\xffb\xc3", `a\xffb\xc3`},
		{"a zero", "a\x00b", `a\x00b`},
		{"as long as it may be", strings.Repeat("é", 30), strings.Repeat("é", 30)},
		{"too long", "GET http://x/" + strings.Repeat("é", 30) + ": why", "GET http://x/ééééééé…ééééé: why"},
	} {
		parallel.Run(t, tt.name, func(t *testing.T) {
			if got := safetext.Clip(tt.in, 31); got != tt.want {
				t.Errorf("got  %q\nwant %q", got, tt.want)
			}
		})
	}
}

// An error with long URLs and IDs keeps every word of its own, and its cure above all.
func TestClipShortensForeignWordsFirst(t *testing.T) {
	t.Parallel()
	const cure = "nothing is published until the place is there again, or gap is set to resume-at-timestamp or restart, or 'feedbridge checkpoint set orders' names another place"
	long := "https://shop.example.com/" + strings.Repeat("é", 5000)
	in := "entities may be missing: the prev link of " + long + "1 leads to <" + strings.Repeat("x", 700) + "@shop>; " + cure
	got := safetext.Clip(in, 600)
	if n := utf8.RuneCountInString(got); n > 600 || n < 590 {
		t.Errorf("%d characters", n)
	}
	if !strings.HasPrefix(got, "entities may be missing: the prev link of https://shop.example.com/é") || !strings.HasSuffix(got, "x@shop>; "+cure) || !strings.Contains(got, "é1 leads to <x") {
		t.Errorf("got %s", got)
	}
	if got := safetext.Clip(strings.Repeat("words of others ", 500)+"; "+cure, 600); !strings.HasSuffix(got, "; "+cure) || utf8.RuneCountInString(got) != 600 {
		t.Errorf("got %s", got)
	}
	if got := safetext.Clip(strings.Repeat("x", 1000), 300); utf8.RuneCountInString(got) != 300 {
		t.Errorf("a single word has %d characters, want 300", utf8.RuneCountInString(got))
	}
}

func TestClipIsBounded(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		in := strings.Repeat(string(rapid.SliceOfN(rapid.Byte(), 0, 50).Draw(t, "text")), rapid.SampledFrom([]int{1, 3, 1000}).Draw(t, "times"))
		most := rapid.IntRange(1, 300).Draw(t, "most")
		got := safetext.Clip(in, most)
		if n := utf8.RuneCountInString(got); n > most {
			t.Fatalf("%d characters", n)
		}
		for _, r := range got {
			if !strconv.IsPrint(r) {
				t.Fatalf("%q has %q", got, r)
			}
		}
		if again := safetext.Clip(got, most); again != got {
			t.Fatalf("%q is clipped to %q", got, again)
		}
	})
}

func TestRedact(t *testing.T) {
	t.Parallel()
	r := safetext.NewRedactor("ticket")
	for in, want := range map[string]string{
		"https://x.example/feed?page=2":                            "https://x.example/feed?page=2",
		"https://x.example/feed?page=2&key=abc&size=3":             "https://x.example/feed?page=2&key=***&size=3",
		"https://x.example/feed?Access_Token=a%20b#f":              "https://x.example/feed?Access_Token=***#f",
		"https://x.example/feed?X-Amz-Signature=abc&x=1":           "https://x.example/feed?X-Amz-Signature=***&x=1",
		"https://x.example/feed?client_secret=abc;sig=d":           "https://x.example/feed?client_secret=***;sig=***",
		"https://x.example/feed?ticket=abc":                        "https://x.example/feed?ticket=***",
		"https://x.example/feed?monkey=1&keys=2&ticketing=3":       "https://x.example/feed?monkey=1&keys=2&ticketing=3",
		"https://x.example/feed?key=":                              "https://x.example/feed?key=",
		"https://user:word@x.example/feed":                         "https://***@x.example/feed",
		"GET http://x.example/?key=a: b (http://x/?key=a.b).":      "GET http://x.example/?key=***: b (http://x/?key=***).",
		`Get "https://x.example/?apikey=abc": EOF`:                 `Get "https://x.example/?apikey=***": EOF`,
		"<https://x.example/1?token=abc>; rel=self, <https://x/2>": "<https://x.example/1?token=***>; rel=self, <https://x/2>",
		"write to me@x.example":                                    "write to me@x.example",
	} {
		if got := r.Text(in); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
	if got, want := r.URL("https://user:word@x.example/feed?auth=a"), "https://x.example/feed?auth=***"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	for in, want := range map[string]string{
		"set it with 'feedbridge checkpoint set orders'; 'feedbridge reload --yes', or 'feedbridge init'": "set it with 'feedbridge checkpoint set -c a.yaml orders'; 'feedbridge reload -c a.yaml --yes', or 'feedbridge init'",
		"'feedbridge resume -c b.yaml orders'": "'feedbridge resume -c b.yaml orders'",
	} {
		if got := r.WithFile("a.yaml").Clip(in, 1000); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
		if got := r.Clip(in, 1000); got != in {
			t.Errorf("without a file: %s", got)
		}
	}
	var none *safetext.Redactor
	if got, want := none.Text("http://x/?key=1&ticket=2"), "http://x/?key=***&ticket=2"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// A line end within a value does not keep it from being hidden, because texts are
// cleaned first.
func TestSecretsAreHiddenAfterCleaning(t *testing.T) {
	t.Parallel()
	var r *safetext.Redactor
	for _, in := range []string{"http://x/?key=abc\x00def", "http://x/?key=abc\u202edef", "http://x/?key=abc\x1bdef"} {
		if got := r.Clip(in, 100); strings.Contains(got, "abc") || strings.Contains(got, "def") {
			t.Errorf("%q becomes %q", in, got)
		}
	}
	// A text that is cut within a secret shows nothing of it.
	long := "http://x/?key=" + strings.Repeat("s3cret", 100_000)
	if got := r.Clip(long, 60); strings.Contains(got, "s3cret") || utf8.RuneCountInString(got) > 60 {
		t.Errorf("got %q", got)
	}
}

func TestRedactorCleansTheStringsOfJSON(t *testing.T) {
	t.Parallel()
	var r *safetext.Redactor
	in := `{"a": ["http://x/?key=1", "say \"hi\\", 1.5, true, null], "b": {"c": "` + strings.Repeat("x", 50) + `", "d": "<&>\u001b\n"}}`
	want := `{"a": ["http://x/?key=***", "say \"hi\\", 1.5, true, null], "b": {"c": "` + strings.Repeat("x", 20) + "…" + strings.Repeat("x", 9) + `", "d": "<&>\\x1b"}}`
	if got := string(r.JSON([]byte(in), 30)); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestJSONKeepsItsMeaning(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		want := rapid.String().Draw(t, "text") + rapid.SampledFrom([]string{"", "\u009b", "\u202e", "\U000e0001", "\x7f"}).Draw(t, "more")
		b, err := json.MarshalIndent(map[string]string{"a": want}, "", "\t")
		must.Succeed(t, err)
		safe := safetext.JSON(b)
		for _, r := range string(safe) {
			if !strconv.IsPrint(r) && r != '\n' && r != '\t' {
				t.Fatalf("%s has %q", safe, r)
			}
		}
		var got map[string]string
		if err := json.Unmarshal(safe, &got); err != nil || got["a"] != want {
			t.Fatalf("%q reads back as %q, %v", want, got["a"], err)
		}
	})
}
