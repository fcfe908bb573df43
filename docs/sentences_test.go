package docs_test

import (
	"go/ast"
	"regexp"
	"testing"
)

// Errors are shortened to 2,000 characters where they are shown. The last third of that
// stays whatever the rest consists of, so a message that has fewer characters of its own
// is never cut before its cure.
func TestErrorsFitIntoSentences(t *testing.T) {
	const most = 600
	verb := regexp.MustCompile(`%[-+# 0-9.*\[\]]*[a-zA-Z]`)
	count := 0
	for file, parsed := range sources(t, false) {
		ast.Inspect(parsed, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok || len(call.Args) == 0 {
				return true
			}
			f, ok := call.Fun.(*ast.SelectorExpr)
			if !ok || f.Sel.Name != "Errorf" && f.Sel.Name != "New" {
				return true
			}
			if message, ok := text(call.Args[0]); ok {
				count++
				if own := verb.ReplaceAllString(message, ""); len(own) > most {
					t.Errorf("%s: the message has %d characters of its own, and may have %d: %s", file, len(own), most, message)
				}
			}
			return true
		})
	}
	if count < 300 {
		t.Errorf("found only %d messages", count)
	}
}
