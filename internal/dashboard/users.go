package dashboard

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"

	"golang.org/x/crypto/bcrypt"
)

// Users are names and the bcrypt hashes of their passwords.
type Users map[string][]byte

// ParseUsers reads lines name:hash, as htpasswd -B writes them.
func ParseUsers(text []byte) (Users, error) {
	users := Users{}
	for i, line := range bytes.Split(text, []byte("\n")) {
		entry := strings.TrimSpace(string(line))
		if entry == "" || strings.HasPrefix(entry, "#") {
			continue
		}
		name, hash, ok := strings.Cut(entry, ":")
		if !ok || name == "" {
			return nil, fmt.Errorf("line %d is not name:hash", i+1)
		}
		if _, err := bcrypt.Cost([]byte(hash)); err != nil {
			return nil, fmt.Errorf("line %d: the hash of %s is none of bcrypt; htpasswd -B makes one", i+1, name)
		}
		if _, twice := users[name]; twice {
			return nil, fmt.Errorf("line %d: %s is there twice", i+1, name)
		}
		users[name] = []byte(hash)
	}
	if len(users) == 0 {
		return nil, errors.New("no user in it; want lines name:hash, as htpasswd -B writes them")
	}
	return users, nil
}

// checked remembers passwords that were right, by a hash, since bcrypt is slow on purpose and a page asks often.
type checked struct {
	sync.Mutex
	sums map[[sha256.Size]byte]bool
}

func (c *checked) right(users Users, name, password string) bool {
	hash, known := users[name]
	sum := sha256.Sum256([]byte(name + "\x00" + string(hash) + "\x00" + password))
	c.Lock()
	ok := c.sums[sum]
	c.Unlock()
	if ok {
		return true
	}
	if !known {
		hash = nobody() // as slow as for a name that there is
	}
	if bcrypt.CompareHashAndPassword(hash, []byte(password)) != nil || !known {
		return false
	}
	c.Lock()
	defer c.Unlock()
	if c.sums == nil || len(c.sums) > 1000 {
		c.sums = map[[sha256.Size]byte]bool{}
	}
	c.sums[sum] = true
	return true
}

// nobody is the hash of a password that nobody has.
var nobody = sync.OnceValue(func() []byte {
	hash, _ := bcrypt.GenerateFromPassword([]byte(rand.Text()), bcrypt.DefaultCost)
	return hash
})

type userKey struct{}

// user is who asks; "" where everybody may.
func user(r *http.Request) string {
	name, _ := r.Context().Value(userKey{}).(string)
	return name
}

// known lets through who says the right password.
func (s *Server) known(next http.Handler) http.Handler {
	if s.opts.Users == nil {
		return next
	}
	var passwords checked
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name, password, given := r.BasicAuth()
		if !given || !passwords.right(s.opts.Users, name, password) {
			w.Header().Set("WWW-Authenticate", `Basic realm="emq", charset="UTF-8"`)
			http.Error(w, "name and password, please", http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), userKey{}, name)))
	})
}
