package httplimit_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/echomq/emq/emqtest"
	"github.com/echomq/emq/limiter"
	"github.com/echomq/emq/limiter/httplimit"
)

// Two requests an hour for each user.
func ExampleNew() {
	client, _ := emqtest.Start() // or valkey.NewClient(valkey.ClientOption{InitAddress: []string{"127.0.0.1:6379"}})
	l, err := limiter.New(client, limiter.Options{Prefix: "example:http:", Timeout: time.Second, OnError: limiter.FailOpen})
	if err != nil {
		panic(err)
	}
	defer l.Reset(context.Background(), "ada")
	limit, err := httplimit.New(l, httplimit.Options{
		Limit: limiter.PerHour(2),
		Key:   func(r *http.Request) string { user, _, _ := r.BasicAuth(); return user }, // after the password was checked
	})
	if err != nil {
		panic(err)
	}
	hello := limit(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "hello") }))

	for range 3 {
		r, w := httptest.NewRequest("GET", "/", nil), httptest.NewRecorder()
		r.SetBasicAuth("ada", "secret")
		hello.ServeHTTP(w, r)
		fmt.Println(w.Code, w.Header().Get("RateLimit-Policy"), w.Header()["Retry-After"] != nil)
	}
	// Output:
	// 200 "default";q=2;w=3600 false
	// 200 "default";q=2;w=3600 false
	// 429 "default";q=2;w=3600 true
}
