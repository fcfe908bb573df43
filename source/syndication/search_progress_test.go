package syndication_test

import (
	"net/http"
	"testing"

	"github.com/feedbridge/feedbridge/source/syndication"
)

// While older documents are read, the source says how many, and the time of the last one.
func TestSearchForTheOldestDocumentSaysHowFarItHasCome(t *testing.T) {
	t.Parallel()
	u := archived()
	r := u.read(t)
	search := func() string { return r.src.Source.(*syndication.Source).Search() }
	var during []string
	for _, path := range []string{"/feed", "/a2", "/a1"} {
		doc := u.docs[path]
		u.serve(path, func(w http.ResponseWriter, _ *http.Request) {
			during = append(during, search())
			w.Header().Set("Content-Type", "application/xml")
			_, _ = w.Write([]byte(doc))
		})
	}
	r.want(archivedMessages)
	want := []string{"", "", "the oldest document; 1 document is read, back to 1999-10-05T03:00:03Z"}
	if len(during) != len(want) {
		t.Fatalf("got %q", during)
	}
	for i := range want {
		if during[i] != want[i] {
			t.Errorf("request %d: %q, want %q", i, during[i], want[i])
		}
	}
	if got := search(); got != "" {
		t.Errorf("after the call there is still the search %q", got)
	}
}
