// A program of musl that does nothing, for others to start.
int main(void) { return 0; }
