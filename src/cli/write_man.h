#ifndef POSTRIDER_CLI_WRITE_MAN_H
#define POSTRIDER_CLI_WRITE_MAN_H

#include <stdio.h>

/* The manual page postrider(1), from the tables of commands and flags. */
void cli_write_man(FILE *out);

#endif
